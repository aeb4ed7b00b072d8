#!/usr/bin/env python3
"""Runs a program and says whether it ended as it should and printed what it should.

  expect_output.py [--code N] PATTERN PROGRAM [ARGUMENT ...]

Succeeds if the program exits with N (default 0) and PATTERN, a regular expression of Python whose dot also
stands for a line's end, is found in its output. An exit code of 77 that was not asked for is passed on: the
program has skipped itself. Everything else is a failure, a signal included. ctest's
PASS_REGULAR_EXPRESSION is not a replacement: with it ctest does not look at the exit code.
"""
import argparse
import re
import subprocess
import sys

SKIPPED = 77


def run(command):
    """(exit code, negative for a signal, and output) of a command, whose output is also printed at once."""
    pieces = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        for line in process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            pieces.append(line)
    return process.returncode, b"".join(pieces).decode(errors="replace")


def judge(code, output, pattern, expected):
    """(exit code of this script, what is wrong)."""
    if code == SKIPPED != expected:
        return SKIPPED, ""
    if code < 0:
        return 1, f"the program was ended by signal {-code}"
    if code != expected:
        return 1, f"the program exited with {code}, and not with {expected}"
    if not re.search(pattern, output, re.DOTALL):
        return 1, f"the output has nothing that matches \"{pattern}\""
    return 0, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", type=int, default=0)
    parser.add_argument("pattern")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if not args.command:
        parser.error("a program is needed")
    try:
        code, why = judge(*run(args.command), args.pattern, args.code)
    except OSError as error:
        code, why = 1, f"{args.command[0]} cannot be started: {error.strerror}"
    if why:
        print(f"failed: {why}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
