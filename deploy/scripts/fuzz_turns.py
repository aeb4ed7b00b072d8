#!/usr/bin/env python3
"""Chooses the fuzz targets that a run of .ci/run builds and runs: those of its turn (ci_turns.py).

  deploy/scripts/fuzz_turns.py [--show | --out FILE]
--show  lists all turns
--out   writes the names of this run's targets, one a line

Turns are the lines of fuzz_turns.txt, and every target of tests/fuzz/targets is in exactly one.
"""
import argparse
import pathlib
import sys

from ci_turns import ROOT, draw, note

TURNS = pathlib.Path(__file__).resolve().parent / "fuzz_turns.txt"


def read_turns(text):
    """Lists of names, in order."""
    lines = [line.partition("#")[0].split() for line in text.splitlines()]
    return [line for line in lines if line]


def wrong_with(turns, targets):
    """Lines about targets that are not in exactly one turn."""
    dealt = [name for turn in turns for name in turn]
    wrong = [f"{name} is in no turn" for name in sorted(set(targets) - set(dealt))]
    wrong += [f"{name} is in {dealt.count(name)} turns" for name in sorted(set(dealt))
              if dealt.count(name) > 1]
    return wrong + [f"there is no target {name}" for name in sorted(set(dealt) - set(targets))]


def targets_of(root=ROOT):
    return sorted(path.stem for path in (root / "tests/fuzz/targets").glob("*.cc"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    turns, targets = read_turns(TURNS.read_text(encoding="utf-8")), targets_of()
    wrong = wrong_with(turns, targets)
    if wrong:
        raise SystemExit("".join(f"error: {line}\n" for line in wrong)
                         + f"write into {TURNS.name} in which turn it is built and run")
    if args.show:
        print("\n".join(f"turn {number}: {' '.join(turn)}" for number, turn in enumerate(turns)))
        return 0
    drawn = draw(len(turns))
    mine = turns[drawn.turn]
    note(f"fuzzing: {drawn.text()}: {', '.join(mine)}; {len(targets) - len(mine)} of {len(targets)} targets not "
         "run: another turn by design")
    if args.out:
        args.out.write_text("".join(f"{name}\n" for name in mine), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
