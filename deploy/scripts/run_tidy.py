#!/usr/bin/env python3
"""Runs clang-tidy on every source file of the build, remembering files that were clean.

A file is checked again when it, any repository header it includes, or .clang-tidy changes.
"""
import argparse
import concurrent.futures
import hashlib
import json
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
    # Tests are left to the compiler's warnings: Catch2's macros trip half of the checks.
    return sorted(f for f in files if f.is_relative_to(ROOT) and not f.is_relative_to(build)
                  and f.relative_to(ROOT).parts[0] != "tests")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9)
    args = parser.parse_args()
    build, begin = args.build.resolve(), time.monotonic()
    clean_dir = ROOT / ".cache" / "tidy"
    clean_dir.mkdir(parents=True, exist_ok=True)

    def check(path):
        stamp = clean_dir / fingerprint(path)
        if stamp.exists():
            return path, "known", ""
        if time.monotonic() - begin > args.seconds:
            return path, "late", ""
        done = subprocess.run(
            ["clang-tidy", "--quiet", "-p", str(build), str(path)],
            capture_output=True, text=True, check=False)
        if done.returncode == 0:
            stamp.touch()
            return path, "clean", ""
        text = done.stdout + done.stderr
        # g++ is the compiler; what only clang cannot parse (C++20 it lacks) is said, not failed.
        if "[clang-diagnostic-error" in text and not FINDING.search(text):
            return path, "unparsed", ""
        return path, "bad", text

    counts = {"known": 0, "late": 0, "clean": 0, "bad": 0, "unparsed": 0}
    files = sources(build)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for path, result, text in pool.map(check, files):
            counts[result] += 1
            if result == "unparsed":
                print(f"clang-tidy: clang cannot parse {path.relative_to(ROOT)}", flush=True)
            if text:
                print(text, flush=True)
    print(f"clang-tidy: {len(files)} files, {counts['clean']} clean, {counts['known']} clean and "
          f"unchanged, {counts['bad']} with findings, "
          f"{counts['unparsed']} that clang cannot parse, {counts['late']} not checked for lack of "
          f"time, {time.monotonic() - begin:.0f} s")
    return 1 if counts["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
