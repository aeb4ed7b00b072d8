#!/usr/bin/env python3
"""Runs clang-tidy on what is due in this run, remembering files that were clean.

  deploy/scripts/run_tidy.py --build DIR [--jobs N] [--plan-seconds N] [--seconds N] [--whole]

Due are the files of the turn that this run draws, and as many as fit into --plan-seconds besides of those that
changed since the recorded commit or include what did (ci_turns.py); --whole: all files. A file that
was clean is not checked again before it, a repository header that it includes or .clang-tidy changes.
Whatever is due and was not checked is a failure: for lack of time, because it took too long, or because
clang cannot parse it. Files that only g++ can parse are listed with their reason in tidy_unparsed.txt; one
that clang can parse must not. The compile commands must be of single files: a build without unity
files and precompiled headers.
Of tests only locks are checked (-Wthread-safety): of the sources that use a Mutex, and of the headers below tests that do,
each by one source that includes it.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from ci_turns import ROOT, Includes, note, plan

UNPARSED = ROOT / "deploy" / "scripts" / "tidy_unparsed.txt"
TURNS = 10
FILE_SECONDS = 8  # of one core: 3 to 6 as measured, and a slower machine
LOCK = re.compile(r"\bMutex(?:Lock)?\b")
# Catch2's macros trip half of the other checks; a lock that is not kept is one of this kind.
TEST_OPTIONS = ("--checks=-*,bugprone-unused-raii,clang-diagnostic-thread-safety*", "--header-filter=/tests/")


def options_of(name):
    """Of clang-tidy, for this file, besides those in .clang-tidy."""
    return TEST_OPTIONS if name.startswith("tests/") else ()


def fingerprint(name, includes):
    digest = hashlib.sha256((ROOT / ".clang-tidy").read_bytes() + " ".join(options_of(name)).encode())
    for file in sorted(includes.closure(name)):
        digest.update((ROOT / file).read_bytes())
    return digest.hexdigest()


def uses_lock(name):
    return bool(LOCK.search((ROOT / name).read_text(encoding="utf-8", errors="replace")))


def tests_with_locks(names, includes):
    """Of tests' sources those that use a lock, and for each header of tests that does one that includes it."""
    found = {name for name in names if uses_lock(name)}
    users = {}
    for name in names:
        for file in includes.closure(name):
            if file.startswith("tests/") and file.endswith(".h") and uses_lock(file):
                users.setdefault(file, []).append(name)
    for header, including in sorted(users.items()):
        if found.isdisjoint(including):
            found.add(min(including, key=lambda name: (header not in includes.direct(name), name)))
    return sorted(found)


def sources(build, includes):
    """Paths in the repository."""
    commands = json.loads((build / "compile_commands.json").read_text())
    files = {pathlib.Path(c["directory"], c["file"]).resolve() for c in commands}
    # Kernels are left to nvcc, whose flags clang does not know.
    ours = sorted(str(f.relative_to(ROOT)) for f in files
                  if f.is_relative_to(ROOT) and not f.is_relative_to(build) and f.suffix != ".cu")
    tests = [name for name in ours if name.startswith("tests/")]
    return sorted((set(ours) - set(tests)) | set(tests_with_locks(tests, includes)))


def read_unparsed(path=UNPARSED):
    """{file that clang cannot parse: reason}."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if line.strip() and not line.startswith("#"):
            name, _, reason = (part.strip() for part in line.partition("|"))
            if not reason or not (ROOT / name).is_file():
                raise SystemExit(f"error: {path.name}: not a row \"file | reason\" of a file that is there: {line}")
            found[name] = reason
    return found


def tidy(name, build, seconds):
    """(result, text) of one file: clean, bad, unparsed or slow."""
    try:
        done = subprocess.run(["clang-tidy", "--quiet", "-p", str(build), *options_of(name), str(ROOT / name)],
                              timeout=seconds, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired:
        return "slow", ""
    if done.returncode == 0:
        return "clean", ""
    text = done.stdout + done.stderr
    # Checks see little or nothing of what clang could not parse, findings or not.
    return "unparsed" if "[clang-diagnostic-error" in text else "bad", text


# What to say of a file with this result; clean and bad ones need no line.
WHY = {"unparsed": "clang cannot parse, and g++ compiles; write it another way or name it in tidy_unparsed.txt:",
       "listed": "not checked, as only g++ can parse it:",
       "parsed": "is in tidy_unparsed.txt, and clang can parse it; take its row away:",
       "slow": "took too long, not checked:", "late": "not reached:"}


def report(found, known, seconds):
    """Prints the files that deserve a line and the totals; whether all that was due is clean."""
    names = {result: [name for name, r in found if r == result] for result in ("clean", "bad", *WHY)}
    for result, why in WHY.items():
        for name in names[result]:
            print(f"clang-tidy: {why} {name}")
    unparsed = len(names["unparsed"]) + len(names["listed"])
    line = (f"clang-tidy: {len(found) + known} files, {len(names['clean'])} clean, {known} clean and "
            f"unchanged, {len(names['bad'])} with findings, {unparsed} that clang cannot parse "
            f"({len(names['listed'])} of them in tidy_unparsed.txt), {len(names['parsed'])} in it by mistake, "
            f"{len(names['slow'])} that took too long, {len(names['late'])} not reached; {seconds:.0f} s")
    if any(names[result] for result in WHY):
        note(line)
    else:
        print(line, flush=True)
    if names["slow"] or names["late"]:
        print("error: clang-tidy lacked time for what is due; deploy/scripts/lint.sh --whole has no limit",
              file=sys.stderr)
    return all(result in ("clean", "listed") for _, result in found)


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--plan-seconds", type=float, default=300, help="that what is due may take")
    parser.add_argument("--seconds", type=float, default=1e6, help="after which no file is begun")
    parser.add_argument("--file-seconds", type=float, default=240, help="for one file")
    parser.add_argument("--whole", action="store_true", help="all files, not today's")
    return parser.parse_args()


def main():
    args = parse()
    build, begin, includes = args.build.resolve(), time.monotonic(), Includes()
    unparsed = read_unparsed()
    clean_dir = pathlib.Path(os.environ.get("TANDEM_HOME", ROOT)) / ".cache/tidy"  # ROOT may be read-only
    clean_dir.mkdir(parents=True, exist_ok=True)

    def check(name):
        left = args.seconds - (time.monotonic() - begin)
        if left <= 0:
            return name, "late"
        result, text = tidy(name, build, min(left, args.file_seconds))
        if name in unparsed:
            result, text = {"unparsed": ("listed", ""), "clean": ("parsed", ""),
                            "bad": ("parsed", text)}.get(result, (result, text))
        if result == "clean":
            (clean_dir / fingerprint(name, includes)).touch()
        if result == "slow" and left < args.file_seconds:
            result = "late"
        if text:
            print(text, flush=True)
        return name, result

    names = sources(build, includes)
    pending = [name for name in names
               if name in unparsed or not (clean_dir / fingerprint(name, includes)).exists()]
    due = pending
    if not args.whole:
        today = plan("clang-tidy", pending, TURNS, int(args.plan_seconds * args.jobs / FILE_SECONDS))
        today.say()
        due = today.due
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        found = list(pool.map(check, due))
    return 0 if report(found, len(names) - len(pending), time.monotonic() - begin) else 1


if __name__ == "__main__":
    sys.exit(main())
