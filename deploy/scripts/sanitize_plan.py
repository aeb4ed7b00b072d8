#!/usr/bin/env python3
"""Chooses the test programs for each sanitizer in this run, so that every program is in some turn.

  deploy/scripts/sanitize_plan.py address=BUILD thread=BUILD [--show | --whole | --out DIR]
                                  [--seconds N] [--changed-seconds N]
  deploy/scripts/sanitize_plan.py --record BUILD   writes sanitizer_costs.txt from a build and its tests

The programs are those of the tests that ctest lists for a configured build of each sanitizer; what is
left out stands with its reason in sanitizer_rules.txt. They are dealt into turns of at most N seconds
(default 900) on two cores and an empty compiler cache, each of one sanitizer, as programs share what
they compile with those of their sanitizer alone. A program's turn follows from its name, unless that
one is full; so it mostly stays where it is when others come, go or grow. A program that takes longer
than a turn by itself is an error. Costs come from sanitizer_costs.txt. Programs that use what changed
since the recorded commit, or are compiled by a CMake file that did, are added to the turn that this
run draws (ci_turns.py), the cheapest first, for --changed-seconds more (150). --out DIR writes
address.targets and thread.targets for ninja, address.tests and thread.tests for ctest, a program a line,
the cheapest first; --show prints all turns.
"""
import argparse
import fnmatch
import pathlib
import re
import subprocess
import sys
import typing

from ci_turns import ROOT, Includes, changed_files, draw, folders_of, note, number_of, turn_of
from ctest_programs import executables_of, program_of, tests_of

SCRIPTS = pathlib.Path(__file__).resolve().parent
COSTS, RULES = SCRIPTS / "sanitizer_costs.txt", SCRIPTS / "sanitizer_rules.txt"
CORES = 2
LINK_SECONDS, OBJECT_SECONDS, TEST_SECONDS = 3, 4, 8  # of one core, where the table has nothing
ELSEWHERE = 0.1  # of the programs may be in another turn than the one of their name
# Programs whose tests are dealt in so many shares, by their names: together they take longer than a turn.
SHARES = {"tests/test_golden": 3}
COMPILING = {"address": 2.2, "thread": 1.0}  # times a normal build, as measured with -O1
RUNNING = {"address": 2.5, "thread": 6.0}
OBJECT = re.compile(r" -o (\S*CMakeFiles/(\S+?)\.dir/\S+)(?: -c (\S+))?")


class Program(typing.NamedTuple):
    """A program under one sanitizer."""
    sanitizer: str
    name: str  # its path in the build
    tests: tuple  # that run it
    objects: dict  # {object: (target, source)} that it needs
    share: str = ""  # "2 of 6": these are a share of its tests, and others are in other turns

    @property
    def key(self):
        """What its place among the turns follows from."""
        return f"{self.name} {self.share}" if self.share else self.name


class Costs(typing.NamedTuple):
    targets: dict  # {CMake target: seconds of one core for all of its objects}
    tests: dict  # {test: seconds}


def table_rows(path):
    """Cells of a table's lines."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [[cell.strip() for cell in line.split("|")] for line in lines
            if line.strip() and not line.startswith("#")]


def read_costs(path=COSTS):
    costs = Costs({}, {})
    for kind, name, seconds in table_rows(path):
        {"target": costs.targets, "test": costs.tests}[kind][name] = float(seconds)
    return costs


def why_left_out(test, program, sanitizer, rules):
    """Why a test is in no turn of this sanitizer; "" if it is in one."""
    if not program:
        return "a script, or a program of another place: nothing of it is instrumented"
    for which, kind, pattern, reason in rules:
        if which in (sanitizer, "both"):
            texts = {"label": test["labels"], "test": [test["name"]], "program": [program]}[kind]
            if any(fnmatch.fnmatchcase(text, pattern) for text in texts):
                return reason
    return ""


def objects_of(build, program):
    """{object: (target, path of its source)} that ninja makes for a program."""
    done = subprocess.run(["ninja", "-C", str(build), "-t", "commands", program],
                          capture_output=True, text=True, check=True)
    return {found[1]: (found[2].rsplit("/", 1)[-1], str(pathlib.Path(build, found[3] or "")))
            for found in map(OBJECT.search, done.stdout.splitlines()) if found}


def choose(tests, build, executables, sanitizer, rules):
    """({program: tests}, {test: why it is left out})."""
    chosen, left = {}, {}
    for test in tests:
        program = program_of(test, build, executables)
        why = why_left_out(test, program, sanitizer, rules)
        if why:
            left[test["name"]] = why
        else:
            chosen.setdefault(program, []).append(test["name"])
    return chosen, left


class Estimate:
    """Seconds on CORES cores that programs under their sanitizers take from nothing."""

    def __init__(self, programs, costs):
        self._tests, count = costs.tests, {}
        for (sanitizer, _), target in self._objects(programs).items():
            count[sanitizer, target] = count.get((sanitizer, target), 0) + 1
        targets = {target for _, target in count}
        tests = {test for program in programs for test in program.tests}
        self.sizes = len(targets), len(tests)
        self.without_row = len(targets - costs.targets.keys()), len(tests - costs.tests.keys())
        self._seconds = {
            (sanitizer, target): costs.targets.get(target, OBJECT_SECONDS * number) / number
            * COMPILING[sanitizer] for (sanitizer, target), number in count.items()}

    @staticmethod
    def _objects(programs):
        """{(sanitizer, object): target}: what several programs need is there once."""
        return {(program.sanitizer, name): target for program in programs
                for name, (target, _) in program.objects.items()}

    def seconds(self, programs):
        compiling = sum(self._seconds[sanitizer, target]
                        for (sanitizer, _), target in self._objects(programs).items())
        running = sum(self._tests.get(test, TEST_SECONDS) * RUNNING[program.sanitizer]
                      for program in programs for test in program.tests)
        return (compiling + LINK_SECONDS * len(programs) + running) / CORES


def take_in(turn, left, estimate, seconds):
    """Moves programs of `left` to `turn`, always the one that adds least, until nothing fits."""
    while left:
        cost, place = min((estimate.seconds(turn + [program]), place)
                          for place, program in enumerate(left))
        if cost > seconds:
            break
        turn.append(left.pop(place))


def too_long(programs, estimate, seconds):
    """Lines about the programs that no turn can hold."""
    return [f"{one.sanitizer} {one.key} takes about {estimate.seconds([one]):.0f} s by itself, and a turn has "
            f"{seconds:.0f} s" for one in programs if estimate.seconds([one]) > seconds]


def deal_into(count, programs, estimate, seconds):
    """That many turns, or None where they do not hold the programs. Each program goes by its name to
    the turn that comes first in an order of its own, and to the next one in that where it is full: few
    may, as what is full changes with the costs. With one turn more the old ones keep their places in
    these orders, so that few programs move."""
    turns, elsewhere = [[] for _ in range(count)], 0
    for program in sorted(programs, key=lambda program: number_of(program.key)):
        order = sorted(range(count), key=lambda turn: number_of(f"{program.key} {turn}"))
        turn = next((turn for turn in order if estimate.seconds(turns[turn] + [program]) <= seconds), None)
        if turn is None:
            return None
        elsewhere += turn != order[0]
        turns[turn].append(program)
    if elsewhere > len(programs) * ELSEWHERE and count < len(programs):
        return None
    return [turn for turn in turns if turn]


def deal(programs, estimate, seconds):
    """Turns: lists of programs of one sanitizer, as few as hold them all. None is too_long()."""
    turns = []
    for sanitizer in sorted({program.sanitizer for program in programs}):
        mine = [program for program in programs if program.sanitizer == sanitizer]
        dealt = (deal_into(count, mine, estimate, seconds) for count in range(1, len(mine) + 1))
        turns += next(found for found in dealt if found)
    return turns


def changed_programs(programs, changed, root=ROOT):
    """(sanitizer, name) of those that use a file that changed, or are compiled by a CMake file that did."""
    folders, changed, includes, uses = folders_of(changed), set(changed), Includes(root), {}

    def used(source):
        path = pathlib.Path(source)
        # A unit lies in the build and includes its sources by their paths in the repository.
        name = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
        if name not in uses:
            uses[name] = not changed.isdisjoint(includes.closure(name)) \
                or any(includes.is_compiled_in(name, folder) for folder in folders)
        return uses[name]

    return {(program.sanitizer, program.name) for program in programs
            if any(used(source) for _, source in program.objects.values())}


def add_changed(today, programs, changed, estimate, seconds):
    """Today's programs and those of `changed` that can be afforded, the cheapest first; what cannot."""
    today = list(today)
    left = [program for program in programs if (program.sanitizer, program.name) in changed
            and program not in today]
    take_in(today, left, estimate, seconds)
    return today, left


def shares_of(program):
    """The program, or, where SHARES has it, one for each share of its tests."""
    count = SHARES.get(program.name, 1)
    if count == 1:
        return [program]
    shares = [tuple(test for test in program.tests if turn_of(test, count) == share) for share in range(count)]
    return [program._replace(tests=tests, share=f"{share + 1} of {count}") for share, tests in enumerate(shares) if tests]


def read_programs(build, sanitizer):
    """([Program], {test: why it is left out})."""
    executables = executables_of(build)
    chosen, left = choose(tests_of(build), build, executables, sanitizer, table_rows(RULES))
    return [share for name, tests in sorted(chosen.items())
            for share in shares_of(Program(sanitizer, name, tuple(tests), objects_of(build, name)))], left


def show(turns, left, estimate):
    for what, missing, all_of in zip(("CMake targets", "tests"), estimate.without_row, estimate.sizes):
        if missing:
            print(f"default costs: {missing} of {all_of} {what} have no row in {COSTS.name}; "
                  "sanitize_plan.py --record writes them")
    for number, turn in enumerate(turns):
        print(f"turn {number}, about {estimate.seconds(turn):.0f} s:")
        for program in turn:
            print(f"    {program.sanitizer} {program.key}: {', '.join(program.tests)}")
    by_reason = {}
    for (sanitizer, test), why in left.items():
        by_reason.setdefault((sanitizer, why), []).append(test)
    for (sanitizer, why), names in by_reason.items():
        print(f"in no turn of {sanitizer}: {why}:\n    {', '.join(names)}")


def write(folder, sanitizers, programs):
    """What ninja builds, a program a line, and on the same line of the other file what ctest runs of it; files of
    a sanitizer that has nothing in this turn are empty."""
    folder.mkdir(parents=True, exist_ok=True)
    for sanitizer in sanitizers:
        tests = {}  # {program: names}, in the order of the turn
        for program in programs:
            if program.sanitizer == sanitizer:
                tests.setdefault(program.name, []).extend(program.tests)
        lines = ["|".join(re.sub(r"([\[\]().*+?^$|\\])", r"\\\1", name) for name in sorted(names))
                 for names in tests.values()]
        (folder / f"{sanitizer}.targets").write_text("".join(f"{name}\n" for name in tests))
        (folder / f"{sanitizer}.tests").write_text("".join(f"{line}\n" for line in lines))


def tell(drawn, total, today, unaffordable, left, estimate):
    """Lines for the summary: what is looked at, what is not, and why."""
    note(f"sanitizers: {drawn.text()}, about {estimate.seconds(today):.0f} s from nothing: "
         + "; ".join(f"{program.sanitizer} {program.key}" for program in today))
    text = f"sanitizers: {total - len(today)} of {total} programs not looked at: another turn by design"
    if unaffordable:
        text += (f" ({len(unaffordable)} of them use what changed since the recorded commit, or are compiled by "
                 "a CMake file that did, and are more than the seconds of this section hold)")
    note(text)
    if left:
        note(f"sanitizers: {len(left)} tests are in no turn, for the reasons in "
             "deploy/scripts/sanitizer_rules.txt or because they are scripts")


def record(build):
    """Writes the table of costs from .ninja_log and the JUnit file of the last tests."""
    import test_verdict  # pylint: disable=import-outside-toplevel
    import xml.etree.ElementTree  # pylint: disable=import-outside-toplevel
    latest, targets = {}, {}
    for line in (build / ".ninja_log").read_text().splitlines()[1:]:
        begin, end, _, output, _ = line.split("\t")
        found = re.search(r"CMakeFiles/(\S+?)\.dir/", output)
        if found:
            latest[output] = (found[1], (int(end) - int(begin)) / 1000)
    for target, seconds in latest.values():
        targets[target] = targets.get(target, 0) + seconds
    junit = build / "Testing" / "junit.xml"
    results, wrong = test_verdict.read_junit(junit)
    if wrong:
        raise SystemExit(f"error: {wrong[0]}: run deploy/test.sh first")
    cases = xml.etree.ElementTree.parse(junit).getroot().iter("testcase")
    tests = {case.get("name"): float(case.get("time")) for case in cases
             if results[case.get("name")].verdict == "passed"}
    head = [line for line in COSTS.read_text().splitlines() if line.startswith("#")]
    rows = [f"target | {name} | {seconds:.1f}" for name, seconds in sorted(targets.items())]
    rows += [f"test | {name} | {seconds:.1f}" for name, seconds in sorted(tests.items())]
    COSTS.write_text("\n".join(head + rows) + "\n")
    print(f"{COSTS.name}: {len(rows)} rows")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="*", metavar="address=BUILD")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--changed-seconds", type=float, default=150)
    args = parser.parse_args()
    args.builds = dict(build.partition("=")[::2] for build in args.builds)
    if not args.record and (not args.builds or not set(args.builds) <= set(COMPILING)):
        parser.error("address=BUILD, thread=BUILD or both are needed")
    return args


def main():
    args = parse()
    if args.record:
        return record(args.record.resolve())
    programs, left = [], {}
    for sanitizer, build in args.builds.items():
        build = pathlib.Path(build).resolve()
        found, why = read_programs(build, sanitizer)
        programs += found
        left |= {(sanitizer, test): reason for test, reason in why.items()}
    if not programs:
        raise SystemExit("error: no test programs in " + ", ".join(args.builds.values()))
    estimate = Estimate(programs, read_costs())
    wrong = [] if args.whole else too_long(programs, estimate, args.seconds)
    if wrong:
        raise SystemExit("error: " + "\nerror: ".join(wrong) + f"\nsplit it, or write into {RULES.name} why it is in "
                         "no turn")
    turns = [programs] if args.whole else deal(programs, estimate, args.seconds)
    if args.show:
        return show(turns, left, estimate)
    drawn = draw(len(turns))
    today, unaffordable = add_changed(turns[drawn.turn], programs, changed_programs(programs, changed_files("sanitizers")),
                                      estimate, args.seconds + args.changed_seconds)
    tell(drawn, len(programs), today, unaffordable, left, estimate)
    if args.out:
        cheapest_first = []
        take_in(cheapest_first, today, estimate, float("inf"))
        write(args.out, args.builds, cheapest_first)
    return 0


if __name__ == "__main__":
    sys.exit(main())
