#!/usr/bin/env python3
"""No source file has more than 400 lines (.inc are generated tables): usage check_sizes.py [ROOT]."""
import pathlib
import sys

CEILING = 400
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
            lines = len(path.read_text(errors="replace").splitlines())
            if lines > CEILING:
                bad += 1
                print(f"{path.relative_to(root)}: {lines} lines; split it, {CEILING} is the most")
    print(f"sizes: {count} files, {bad} too long")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
