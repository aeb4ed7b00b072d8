"""What a run of .ci/run looks at when it cannot look at everything: a share of the tree by the day,
and what changed since a recorded commit as far as it is affordable.

A file's turn depends on its name alone, so that nothing is missed while other files come and go.
The turn is the number of the day since 1970, modulo the number of turns; TANDEM_CI_TURN=N takes turn N
instead. The commit stands in checked_since.txt beside this file: what differs from it is looked at
in every run, before its turn comes.
"""
import hashlib
import os
import pathlib
import re
import subprocess
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def turn_of_today(turns):
    """0 to turns - 1."""
    forced = os.environ.get("TANDEM_CI_TURN", "")
    day = int(forced) if forced else int(time.time()) // 86400
    return day % turns


def turn_of(name, turns):
    """The turn of a file, from its path in the repository."""
    return int.from_bytes(hashlib.sha256(str(name).encode()).digest()[:8], "big") % turns


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


def changed_files(root=ROOT):
    """Paths, newest change first, of files that differ from the recorded commit, committed or not."""
    record = root / "deploy/scripts/checked_since.txt"
    lines = [line for line in record.read_text().splitlines() if line and line[0] != "#"] \
        if record.exists() else []
    commit = lines[0].split()[0] if lines else ""
    found = git(root, "diff", "--name-only", commit) if commit else None
    if found is None:
        note(f"what changed is not known: commit \"{commit}\" of {record.name} is not in this clone; "
             "everything is looked at in its turn")
        return []
    found += git(root, "ls-files", "--others", "--exclude-standard") or []
    log = git(root, "log", "--format=", "--name-only", f"{commit}..HEAD") or []
    newest = {}
    for place, name in enumerate(log):
        newest.setdefault(name, place)
    # What is not committed yet is newest of all.
    return sorted(set(found), key=lambda name: (newest.get(name, -1), name))


class Includes:
    """Which repository files a file includes, directly or not."""

    def __init__(self, root=ROOT):
        self._root = root
        self._direct = {}

    def direct(self, name):
        if name not in self._direct:
            path = self._root / name
            text = path.read_text(errors="replace") if path.is_file() else ""
            self._direct[name] = [found for found in INCLUDE.findall(text)
                                  if (self._root / found).is_file()]
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


class Plan(typing.NamedTuple):
    turn: int
    turns: int
    due: list  # file names, changed ones first
    late: list  # changed, or including something changed, and left to their turns by design
    others: int  # files whose turn is another day

    def say(self, what):
        """One line for the summary: what is looked at, and what is not and why."""
        text = (f"{what}: turn {self.turn} of {self.turns}: {len(self.due)} files; {self.others} not "
                "looked at: another turn by design")
        if self.late:
            text += (f" ({len(self.late)} of them changed, or include what changed, since the recorded "
                     "commit, and are more than one run can look at)")
        note(text)


def in_order(names, changed, includes):
    """Of `names` those that changed, newest first; then for every changed header one file that
    includes it, itself if it can, its own source if it has one; then all that include one."""
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
        order += users[header]
    return list(dict.fromkeys(order))


def plan(names, turns, capacity, root=ROOT):
    """What of `names` is looked at today: its share by turns whatever it costs, and what changed as
    long as both together are at most `capacity` files."""
    names, turn = set(names), turn_of_today(turns)
    share = sorted(name for name in names if turn_of(name, turns) == turn)
    wanted = in_order(names, changed_files(root), Includes(root))
    room = max(0, capacity - len(share))
    extra = [name for name in wanted if name not in set(share)]
    first = extra[:room]
    mine = set(share)
    due = [name for name in wanted if name in mine or name in set(first)]
    due += [name for name in share if name not in set(due)]
    return Plan(turn, turns, due, extra[room:], len(names) - len(due))
