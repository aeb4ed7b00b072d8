#!/usr/bin/env python3
"""A source of more than 600 lines says in its first comment why it is one file: usage check_sizes.py [ROOT].

A file holds one idea, and so many lines are rarely one idea. The comment has the words
"one file because". Generated tables (.inc) do not count.
"""
import pathlib
import sys

CEILING, REASON, FIRST = 600, "one file because", 20
FOLDERS = ["proto", "common", "controller", "trainer_worker", "rollout_worker", "parity", "deploy", "docs",
           "tests"]
SUFFIXES = {".proto", ".h", ".cc", ".cu", ".py", ".sh", ".cmake"}


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__ + "/../../..").resolve()
    count, bad = 0, 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            count += 1
            lines = path.read_text(errors="replace").splitlines()
            # A comment may be broken between any two of the words.
            first = " ".join(" ".join(lines[:FIRST]).replace("//", " ").replace("#", " ").split())
            if len(lines) > CEILING and REASON not in first:
                bad += 1
                print(f"{path.relative_to(root)}: {len(lines)} lines; split it by ideas, or say in its first "
                      f"comment that it is {REASON} ...")
    if count == 0:
        bad += 1
        print(f"{root} has no source in {', '.join(FOLDERS)}: nothing was checked")
    print(f"sizes: {count} files, {bad} too long")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
