#!/usr/bin/env python3
"""Compiles single files of the turn that a run draws for their syntax alone, so that each includes what it uses.

  deploy/scripts/check_includes.py --build DIR [--jobs N] [--plan-seconds N] [--seconds N] [--whole]

In the normal build unity files and precompiled headers give a file what its neighbours include. DIR
is configured without both (deploy/scripts/plain_build.sh); its compile commands are run with
-fsyntax-only and without a compiler cache. Files are chosen as run_tidy.py chooses them. Whatever is
due and was not compiled is a failure.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

from ci_turns import ROOT, plan

TURNS = 12
FILE_SECONDS = 4  # of one core: 2 to 3.5 as measured, and a slower machine
WITH_VALUE = {"-o", "-MF", "-MT", "-MQ"}
ALONE = {"-c", "-MD", "-MMD", "-Winvalid-pch"}


def is_launcher(word):
    """Whether a word before the compiler belongs to what starts it: cmake -E env A=B ccache."""
    return word in ("-E", "env") or "=" in word or os.path.basename(word) in ("cmake", "ccache", "sccache")


def syntax_command(words):
    """A compile command that writes nothing."""
    while is_launcher(words[0]):
        words = words[1:]
    kept, skip = [], False
    for word in words:
        if skip or word in ALONE:
            skip = False
        elif word in WITH_VALUE:
            skip = True
        else:
            kept.append(word)
    return kept + ["-fsyntax-only"]


def commands_of(build):
    """{path in the repository: (folder, command)}. A kernel is compiled as its emulated twin includes
    it; the .cu itself is nvcc's, and generated protobuf code is not ours."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = pathlib.Path(entry["directory"], entry["file"]).resolve()
        generated = file.is_relative_to(build)
        base = build if generated else ROOT
        # CMake's units are in a folder Unity, ours in build/unity.
        if file.is_relative_to(base) and "unity" in str(file.relative_to(base).parent).lower().split("/"):
            raise SystemExit(f"error: {build} is a unity build; deploy/scripts/plain_build.sh makes a plain one")
        if file.suffix == ".cu" or (generated and not file.name.endswith(".emulated.cc")) \
                or not file.is_relative_to(base):
            continue
        name = file.relative_to(base)
        words = entry.get("arguments") or shlex.split(entry["command"])
        # The same source for a second program says nothing more.
        found.setdefault(str(name), (entry["directory"], syntax_command(words)))
    return found


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--plan-seconds", type=float, default=200, help="that what is due may take")
    parser.add_argument("--seconds", type=float, default=1e6, help="after which no file is begun")
    parser.add_argument("--whole", action="store_true", help="all files, not today's")
    return parser.parse_args()


def main():
    args = parse()
    begin, commands = time.monotonic(), commands_of(args.build.resolve())
    due = sorted(commands)
    if not args.whole:
        today = plan("includes", commands, TURNS, int(args.plan_seconds * args.jobs / FILE_SECONDS))
        today.say()
        due = today.due

    def check(name):
        if time.monotonic() - begin > args.seconds:
            return "late"
        folder, command = commands[name]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"includes: {name} does not compile by itself:\n{done.stdout}{done.stderr}", flush=True)
        return "bad" if done.returncode else "good"

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(check, due))
    for name, result in zip(due, results):
        if result == "late":
            print(f"includes: not reached: {name}")
    bad, late = results.count("bad"), results.count("late")
    print(f"includes: {len(due)} files, {bad} that do not compile by themselves, {late} not reached; "
          f"{time.monotonic() - begin:.0f} s", flush=True)
    return 1 if bad or late else 0


if __name__ == "__main__":
    sys.exit(main())
