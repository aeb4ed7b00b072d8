#!/usr/bin/env python3
"""Figures of the C++ code's shape, to be compared before and after a change of it: usage code_figures.py [ROOT].

Counts files, lines and comments, the median file, folders with more than 24 sources, the classes with the
most public functions, headers with a single user outside of their own pair, folders that include each
other, and includes from one room to another. code_shape.py counts, and says how.
"""
import collections
import pathlib
import re
import statistics
import sys

from code_shape import (INCLUDE, MOST_FILES, MOST_FUNCTIONS, TOPS, arrows_between_folders, files_of_folders,
                        mutual, public_functions, sources)

SHOWN = 12


def users_of(texts):
    """{header: files other than its own pair that include it}."""
    users = collections.defaultdict(set)
    for path, text in texts.items():
        for name in INCLUDE.findall(text):
            if name in texts and pathlib.PurePath(name).stem != pathlib.PurePath(path).stem:
                users[name].add(path)
    return users


def room(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__ + "/../../..").resolve()
    code, tests = sources(root, TOPS), sources(root, ("tests",))
    for name, texts in (("code", code), ("tests", tests)):
        lengths = sorted(text.count("\n") for text in texts.values())
        comments = sum(len(re.findall(r"^\s*//", text, re.M)) for text in texts.values())
        print(f"{name}: {len(texts)} files, {sum(lengths)} lines, median {statistics.median(lengths):.0f}, "
              f"90 % below {lengths[int(len(lengths) * 0.9)]}, largest {lengths[-1]}, "
              f"{100 * comments / sum(lengths):.1f} % of lines are comments")
    folders = files_of_folders(code)
    big = [f"{name} {count}" for name, count in folders.most_common() if count > MOST_FILES]
    print(f"folders: {len(folders)}, with more than {MOST_FILES} files: {', '.join(big) or 'none'}")
    classes = sorted(((count, name, path) for path, text in code.items()
                      for name, count in public_functions(text).items()), reverse=True)
    print(f"classes with more than {MOST_FUNCTIONS} public functions: "
          f"{sum(count > MOST_FUNCTIONS for count, _, _ in classes)}")
    for count, name, path in classes[:SHOWN]:
        print(f"    {count:3} {name} ({path})")
    headers = [path for path in code if path.endswith(".h")]
    users = users_of(code)
    single = [path for path in headers if len(users[path]) == 1]
    unused = [path for path in headers if not users[path]]
    print(f"headers: {len(headers)}, {len(single)} with one user, {len(unused)} that only their pair or tests include")
    arrows = arrows_between_folders(code)
    both = mutual(arrows)
    print(f"folders that include each other: {len(both)}")
    for a, b in both:
        print(f"    {a} -> {b} {arrows[a, b]}, back {arrows[b, a]}")
    rooms = collections.Counter((room(path), room(name)) for path, text in code.items()
                                for name in INCLUDE.findall(text) if name in code and room(name) != room(path))
    print(f"arrows between rooms: {len(rooms)}, includes on them: {sum(rooms.values())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
