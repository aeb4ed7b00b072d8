"""The table of the fault matrix: every cell role/fault/phase, and what is expected of it.

table.txt has a row per line, "roles | faults | phases | outcome | why". A column of names is "*" or a list with commas.
The first row that fits a cell holds for it. Outcomes:
  same                 the run ends with 0 and the whole state of an undisturbed run
  same "TEXT"          and what the run logged contains TEXT
  ends CODE "TEXT"     the run ends with CODE and logs TEXT; the next start ends as `same`
  may CODE "TEXT"      one of both, whichever comes first; CODE `any` is every one but 0
  none                 there is no such cell; "why" says why
  wrong                known to fail; "why" says how. The run of such a cell is shown, and fails nothing
"""
import dataclasses
import re

ROLES = ("controller", "trainer", "rollout", "launcher", "reward")
FAULTS = ("kill", "pause", "stop", "hang", "exit", "slow", "cut", "half-open", "delay", "drop", "truncate", "flip",
          "link-down", "disk-full", "eio", "memory", "clock-forward", "clock-back")
PHASES = ("start", "generate", "train", "optimize", "sync", "save", "wake", "end")
OUTCOME = re.compile(r'(?P<kind>same|ends|may|none|wrong)(?: (?P<code>-?\d+|any))?(?: "(?P<text>[^"]*)")?$')


@dataclasses.dataclass(frozen=True)
class Outcome:
    kind: str
    code: int | None = 0  # None: any but 0
    text: str = ""
    why: str = ""

    def code_text(self):
        return "any" if self.code is None else str(self.code)

    def __str__(self):
        words = [self.kind] + ([self.code_text()] if self.kind in ("ends", "may") else []) + ([f'"{self.text}"'] if self.text else [])
        return " ".join(words)


class TableError(Exception):
    """A table that cannot be read, or that leaves a cell open."""


def names(column, known, line):
    """The names of a column, those of `known` for "*"."""
    if column == "*":
        return known
    chosen = tuple(name.strip() for name in column.split(","))
    for name in chosen:
        if name not in known:
            raise TableError(f"line {line}: there is no {name}; there are {', '.join(known)}")
    return chosen


def outcome(column, why, line):
    """An Outcome from its text."""
    found = OUTCOME.match(column)
    if not found:
        raise TableError(f'line {line}: "{column}" is no outcome: same, ends CODE "TEXT", may CODE "TEXT", none, wrong')
    kind = found["kind"]
    ends = kind in ("ends", "may")
    if ends != (found["code"] is not None) or (ends and found["text"] is None):
        raise TableError(f'line {line}: "ends" and "may" have an exit code and a text, and nothing else has a code')
    if kind in ("none", "wrong") and not why:
        raise TableError(f"line {line}: {kind} needs a reason")
    code = None if found["code"] == "any" else int(found["code"] or 0)
    return Outcome(kind, code, found["text"] or "", why)


def cells_of(text):
    """{"role/fault/phase": Outcome} of all cells, in the table's own order of names."""
    chosen = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        columns = [column.strip() for column in line.split("|")]
        if len(columns) != 5:
            raise TableError(f"line {number}: a row has 5 columns, not {len(columns)}")
        expected = outcome(columns[3], columns[4], number)
        fits = [f"{role}/{fault}/{phase}" for role in names(columns[0], ROLES, number)
                for fault in names(columns[1], FAULTS, number) for phase in names(columns[2], PHASES, number)]
        new = [cell for cell in fits if cell not in chosen]
        if not new:
            raise TableError(f"line {number}: rows above hold for all of its cells")
        chosen.update({cell: expected for cell in new})
    every = [f"{role}/{fault}/{phase}" for role in ROLES for fault in FAULTS for phase in PHASES]
    missing = [cell for cell in every if cell not in chosen]
    if missing:
        raise TableError(f"{len(missing)} cells have no row, the first is {missing[0]}")
    return {cell: chosen[cell] for cell in every}
