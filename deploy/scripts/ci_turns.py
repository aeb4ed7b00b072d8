"""Chooses what a run of .ci/run checks when it cannot check everything: a share of the tree by turns,
and what changed since a recorded commit as far as time allows.

A run draws its turn from a hash of the newest commit. A counter would need state, which CI machines lose;
a count of days or of commits could skip turns for ever where runs are regular; a hash gives each turn the
same chance with each commit. All runs of a commit have the same turn, so running .ci/run on a commit
tells its verdict. TANDEM_CI_TURN=N takes turn N modulo the number of
turns: a CI that numbers its runs gives their number, and all turns come in order.
A file's turn depends on its name alone, so that nothing is missed while other files come and go.
The commit stands in checked_since.txt beside this file, one for each check: what differs from it is looked at
in every run, before its turn comes; so is what includes it, and what a changed CMake file compiles.
"""
import hashlib
import math
import os
import pathlib
import re
import subprocess
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*(?:#\s*include|import(?:\s+public)?)\s+"([^"]+)"', re.M)
GENERATED = re.compile(r"(.+?)(?:\.grpc)?\.pb\.h")


def number_of(text):
    """The same evenly spread number for a text everywhere."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def turn_of(name, turns):
    """The turn of a file, from its path in the repository."""
    return number_of(str(name)) % turns


class Draw(typing.NamedTuple):
    """The turn of a run."""
    turn: int  # 0 to turns - 1
    turns: int
    forced: bool = False

    def text(self):
        """Which turn of how many, and when the others come."""
        if self.forced or self.turns == 1:
            return f"turn {self.turn} of {self.turns}" + (", as TANDEM_CI_TURN has it" if self.forced else "")
        runs = math.ceil(math.log(0.01) / math.log(1 - 1 / self.turns))
        return (f"turn {self.turn} of {self.turns}, drawn by commit (any other has a chance of 1 in {self.turns} "
                f"with each commit and comes within {runs} of them with 99 in 100)")


def draw(turns, root=ROOT):
    """The turn of this run."""
    forced = os.environ.get("TANDEM_CI_TURN", "")
    if forced:
        if not re.fullmatch(r"\d+", forced):
            raise SystemExit(f"error: TANDEM_CI_TURN is \"{forced}\" and must be a number")
        return Draw(int(forced) % turns, turns, True)
    commit = (git(root, "rev-parse", "HEAD") or [""])[0]
    return Draw(number_of(commit) % turns, turns)


def note(text):
    """Printed, and repeated in the summary of .ci/run."""
    print(text, flush=True)
    notes = os.environ.get("TANDEM_CI_NOTES")
    if notes:
        with open(notes, "a", encoding="utf-8") as file:
            file.write(text + "\n")


def git(root, *arguments):
    """Lines that git prints; None where it fails."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True,
                          check=False)
    return done.stdout.splitlines() if done.returncode == 0 else None


def recorded_commits(root=ROOT):
    """{check: commit} as checked_since.txt has them."""
    record = root / "deploy/scripts/checked_since.txt"
    lines = record.read_text().splitlines() if record.exists() else []
    return dict(line.split() for line in lines if line and line[0] != "#")


def changed_files(check, root=ROOT):
    """Paths, newest change first, of files that differ from the commit that is recorded for this check,
    committed or not."""
    commit = recorded_commits(root).get(check, "")
    found = git(root, "diff", "--name-only", commit) if commit else None
    if found is None:
        note(f"{check}: what changed is not known: commit \"{commit}\" of checked_since.txt is not in this "
             "clone; everything is looked at in its turn")
        return []
    found += git(root, "ls-files", "--others", "--exclude-standard") or []
    log = git(root, "log", "--format=", "--name-only", f"{commit}..HEAD") or []
    newest = {}
    for place, name in enumerate(log):
        newest.setdefault(name, place)
    # What is not committed yet is newest of all.
    return sorted(set(found), key=lambda name: (newest.get(name, -1), name))


class Includes:
    """Which repository files a file includes, directly or not. A header that protoc generates stands
    for its proto file, and the twin of a kernel for the emulator for the kernel that it includes."""

    def __init__(self, root=ROOT):
        self._root = root
        self._direct = {}

    def _named(self, text):
        """The repository file that an include names, "" if it names none."""
        generated = GENERATED.fullmatch(text)
        for name in (text, f"proto/{generated[1]}.proto" if generated else f"proto/{text}"):
            if (self._root / name).is_file():
                return name
        return ""

    def direct(self, name):
        if name not in self._direct:
            path = self._root / name
            text = path.read_text(errors="replace") if path.is_file() else ""
            if not text and name.endswith(".emulated.cc"):  # in a build, under the kernel's path
                text = f'#include "{name.removesuffix(".emulated.cc")}"'
            self._direct[name] = [found for found in map(self._named, INCLUDE.findall(text)) if found]
        return self._direct[name]

    def closure(self, name):
        """With the file itself."""
        seen, todo = {name}, [name]
        while todo:
            for found in self.direct(todo.pop()):
                if found not in seen:
                    seen.add(found)
                    todo.append(found)
        return seen

    def is_compiled_in(self, name, folder):
        """Whether a CMake file for this folder ("" or with a slash at the end) says how the file is
        compiled: it, a source of the unit that it is, or a proto file that it uses lies there."""
        ours = [name] + [one for one in self.direct(name) if one.endswith((".cc", ".cu"))]
        ours += [one for one in self.closure(name) if one.endswith(".proto")]
        return any(one.startswith(folder) for one in ours)


def folders_of(changed):
    """The folders whose files a changed CMake file compiles, as for is_compiled_in()."""
    found = []
    for name in changed:
        if name.startswith("deploy/cmake/"):
            found.append("")
        elif name.rsplit("/", 1)[-1] == "CMakeLists.txt":
            found.append(name.removesuffix("CMakeLists.txt"))
    return list(dict.fromkeys(found))


class Plan(typing.NamedTuple):
    check: str
    drawn: Draw
    due: list  # file names, changed ones first
    late: list  # changed, or dependent on something changed, and left to their turns by design
    others: int  # files of another turn

    def say(self):
        """One line for the summary: what is looked at, and what is not and why."""
        text = (f"{self.check}: {self.drawn.text()}: {len(self.due)} files; {self.others} not looked at: another "
                "turn by design")
        if self.late:
            text += (f" ({len(self.late)} of them changed since the recorded commit, include what did or are "
                     "compiled by a CMake file that did, and are more than the seconds of this section hold)")
        note(text)


def in_order(names, changed, includes, drawn):
    """Of `names` those that changed, newest first; then for every changed header one file that
    includes it, itself if it can, its own source if it has one; then all that include one; then what
    a changed CMake file compiles. Many of a kind stand in the order of their turns from this one on,
    so that it is not the same ones in every run that find room."""
    def soonest(found):
        return sorted(found, key=lambda name: ((turn_of(name, drawn.turns) - drawn.turn) % drawn.turns, name))

    order = [name for name in changed if name in names]
    closures = {name: includes.closure(name) for name in sorted(names)}
    headers = [name for name in changed if name not in names]
    users = {header: [name for name, closure in closures.items() if header in closure]
             for header in headers}
    for header in headers:
        stem = header.rsplit(".", 1)[0]
        order += sorted(users[header], key=lambda name: (
            name.rsplit(".", 1)[0] != stem, header not in includes.direct(name), name))[:1]
    for header in headers:
        order += soonest(users[header])
    for folder in folders_of(changed):
        order += soonest(name for name in names if includes.is_compiled_in(name, folder))
    return list(dict.fromkeys(order))


def plan(check, names, turns, capacity, root=ROOT):
    """What of `names` this run of a check looks at: its share by turns whatever it costs, and what changed as
    long as both together are at most `capacity` files."""
    names, drawn = set(names), draw(turns, root)
    share = sorted(name for name in names if turn_of(name, turns) == drawn.turn)
    wanted = in_order(names, changed_files(check, root), Includes(root), drawn)
    room = max(0, capacity - len(share))
    extra = [name for name in wanted if name not in set(share)]
    first = extra[:room]
    mine = set(share)
    due = [name for name in wanted if name in mine or name in set(first)]
    due += [name for name in share if name not in set(due)]
    return Plan(check, drawn, due, extra[room:], len(names) - len(due))
