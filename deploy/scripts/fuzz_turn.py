#!/usr/bin/env python3
"""The fuzz target of this run of .ci/run: fuzz_turn.py TARGET ... prints one of them.

A minute now and then finds what a change has broken; to look for more is for deploy/fuzz.sh by hand. The turn is
drawn as that of all sections (ci_turns.py), and over all turns every target is taken.
"""
import contextlib
import sys

import ci_turns


def choose(targets):
    """The target of this run, and says which others wait for their turn."""
    names = sorted(targets)
    drawn = ci_turns.draw(len(names))
    with contextlib.redirect_stdout(sys.stderr):
        ci_turns.note(f"fuzz: {drawn.text()}: {names[drawn.turn]}; {len(names) - 1} targets not run: another turn "
                      "by design")
    return names[drawn.turn]


if __name__ == "__main__":
    print(choose(sys.argv[1:]))
