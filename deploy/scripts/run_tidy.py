#!/usr/bin/env python3
"""Runs clang-tidy on every source file of the build, remembering files that were clean.

A file is checked again when it, any repository header it includes, or .clang-tidy changes. Files
of the newest commits come first, so that what a limit leaves out is old. Files that were not
reached, or took too long, are named; where TANDEM_CI_NOTES names a file, their number goes there.
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
FINDING = re.compile(r"\[(bugprone|google|modernize)-")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def closure(path, seen):
    """The file and the repository headers it includes, directly or not."""
    if path in seen or not path.is_file():
        return
    seen.add(path)
    for name in INCLUDE.findall(path.read_text(errors="replace")):
        closure(ROOT / name, seen)


def fingerprint(path):
    files = set()
    closure(path, files)
    digest = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def sources(build):
    commands = json.loads((build / "compile_commands.json").read_text())
    files = {pathlib.Path(c["directory"], c["file"]).resolve() for c in commands}
    # Tests are left to the compiler's warnings: Catch2's macros trip half of the checks. Kernels are
    # left to nvcc, whose flags clang does not know.
    return sorted(f for f in files if f.is_relative_to(ROOT) and not f.is_relative_to(build)
                  and f.suffix != ".cu"
                  and f.relative_to(ROOT).parts[0] != "tests")


def newest_first(files):
    """By the commit that touched them last, as far as the history at hand tells."""
    log = subprocess.run(["git", "-C", str(ROOT), "log", "--format=", "--name-only", "-n", "100"],
                         capture_output=True, text=True, check=False).stdout.split()
    rank = {name: i for i, name in reversed(list(enumerate(log)))}
    return sorted(files, key=lambda f: rank.get(str(f.relative_to(ROOT)), len(log)))


def tidy(path, build, seconds):
    """(result, text) of one file: clean, bad, unparsed or slow."""
    try:
        done = subprocess.run(["clang-tidy", "--quiet", "-p", str(build), str(path)], timeout=seconds,
                              capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired:
        return "slow", ""
    if done.returncode == 0:
        return "clean", ""
    text = done.stdout + done.stderr
    # g++ is the compiler; what only clang cannot parse (C++20 it lacks) is said, not failed.
    if "[clang-diagnostic-error" in text and not FINDING.search(text):
        return "unparsed", ""
    return "bad", text


def report(found, seconds):
    """Prints the files that deserve a line and the totals; whether nothing was found."""
    names = {result: [str(p.relative_to(ROOT)) for p, r in found if r == result]
             for result in ("known", "clean", "bad", "unparsed", "slow", "late")}
    for result, why in (("unparsed", "clang cannot parse"), ("slow", "took too long, not checked:"),
                        ("late", "not reached:")):
        for name in names[result]:
            print(f"clang-tidy: {why} {name}")
    line = (f"clang-tidy: {len(found)} files, {len(names['clean'])} clean, {len(names['known'])} "
            f"clean and unchanged, {len(names['bad'])} with findings, {len(names['unparsed'])} that "
            f"clang cannot parse, {len(names['slow'])} that took too long, {len(names['late'])} not "
            f"reached; {seconds:.0f} s")
    print(line, flush=True)
    notes = os.environ.get("TANDEM_CI_NOTES")
    if notes and (names["slow"] or names["late"] or names["unparsed"]):
        with open(notes, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    return not names["bad"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e6, help="for everything")
    parser.add_argument("--file-seconds", type=float, default=240, help="for one file")
    args = parser.parse_args()
    build, begin = args.build.resolve(), time.monotonic()
    clean_dir = ROOT / ".cache" / "tidy"
    clean_dir.mkdir(parents=True, exist_ok=True)

    def check(path):
        stamp = clean_dir / fingerprint(path)
        left = args.seconds - (time.monotonic() - begin)
        if stamp.exists():
            return path, "known"
        if left <= 0:
            return path, "late"
        result, text = tidy(path, build, min(left, args.file_seconds))
        if result == "clean":
            stamp.touch()
        if result == "slow" and left < args.file_seconds:
            result = "late"
        if text:
            print(text, flush=True)
        return path, result

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        found = list(pool.map(check, newest_first(sources(build))))
    return 0 if report(found, time.monotonic() - begin) else 1


if __name__ == "__main__":
    sys.exit(main())
