#!/usr/bin/env python3
"""Which test programs are built and run under which sanitizer today, so that all are in some turn.

  deploy/scripts/sanitize_plan.py address=BUILD thread=BUILD [--show | --whole | --out DIR]
                                  [--seconds N] [--changed-seconds N]
  deploy/scripts/sanitize_plan.py --record BUILD   writes sanitizer_costs.txt from a build and its tests

The programs are those of the tests that ctest lists for a configured build of each sanitizer; what is
left out stands with its reason in sanitizer_rules.txt. They are dealt into turns of at most N seconds
(default 1200) on two cores and an empty compiler cache, for both sanitizers together: a turn holds some
programs of each, or a single costly one, and the other sanitizer has another day. What programs share
is compiled once, so that programs which share much are in one turn. Costs come from
sanitizer_costs.txt. Programs that use what changed since the recorded commit are added to today's
turn, the cheapest first, for --changed-seconds more (200). --out DIR writes address.targets and
thread.targets for ninja, address.tests and thread.tests for ctest; --show prints all turns.
"""
import argparse
import fnmatch
import pathlib
import re
import subprocess
import sys
import typing

from ci_turns import ROOT, Includes, changed_files, note, turn_of_today
from ctest_programs import executables_of, program_of, tests_of

SCRIPTS = pathlib.Path(__file__).resolve().parent
COSTS, RULES = SCRIPTS / "sanitizer_costs.txt", SCRIPTS / "sanitizer_rules.txt"
CORES = 2
LINK_SECONDS, OBJECT_SECONDS, TEST_SECONDS = 3, 4, 8  # of one core, where the table has nothing
COMPILING = {"address": 2.2, "thread": 1.0}  # times a normal build, as measured with -O1
RUNNING = {"address": 2.5, "thread": 6.0}
OBJECT = re.compile(r" -o (\S*CMakeFiles/(\S+?)\.dir/\S+)(?: -c (\S+))?")


class Program(typing.NamedTuple):
    """A program under one sanitizer."""
    sanitizer: str
    name: str  # its path in the build
    tests: tuple  # that run it
    objects: dict  # {object: (target, source)} that it needs


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
    """{object: (target, source)} that ninja makes for a program."""
    done = subprocess.run(["ninja", "-C", str(build), "-t", "commands", program],
                          capture_output=True, text=True, check=True)
    return {found[1]: (found[2].rsplit("/", 1)[-1], found[3] or "")
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


def deal(programs, estimate, seconds):
    """Turns: lists of programs. A turn begins with the costliest program that is left and takes in
    whichever adds least, until nothing fits."""
    left = sorted(programs, key=lambda program: (-estimate.seconds([program]), program.name,
                                                  program.sanitizer))
    turns = []
    while left:
        turn = [left.pop(0)]
        take_in(turn, left, estimate, seconds)
        turns.append(turn)
    return turns


def changed_programs(programs, changed, root=ROOT):
    """(sanitizer, name) of those that use a file that changed."""
    changed, includes, uses = set(changed), Includes(root), {}

    def used(source):
        path = pathlib.Path(source)
        name = str(path.relative_to(root)) if path.is_relative_to(root) else ""
        if name not in uses:
            uses[name] = bool(name) and not changed.isdisjoint(includes.closure(name))
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


def read_programs(build, sanitizer):
    """([Program], {test: why it is left out})."""
    executables = executables_of(build)
    chosen, left = choose(tests_of(build), build, executables, sanitizer, table_rows(RULES))
    return [Program(sanitizer, name, tuple(tests), objects_of(build, name))
            for name, tests in sorted(chosen.items())], left


def sources_in_unity(build, objects):
    """The same objects, a unity file's once for every source that it includes."""
    found = {}
    for name, (target, source) in objects.items():
        path = pathlib.Path(build, source)
        unity = "/Unity/" in source and path.is_file()
        parts = re.findall(r'^#include "([^"]+)"', path.read_text(), re.M) if unity else []
        for place, part in enumerate(parts or [str(path)]):
            found[f"{name} {place}"] = (target, part)
    return found


def show(turns, left, estimate):
    for number, turn in enumerate(turns):
        print(f"turn {number}, about {estimate.seconds(turn):.0f} s:")
        for program in turn:
            print(f"    {program.sanitizer} {program.name}: {', '.join(program.tests)}")
    by_reason = {}
    for (sanitizer, test), why in left.items():
        by_reason.setdefault((sanitizer, why), []).append(test)
    for (sanitizer, why), names in by_reason.items():
        print(f"in no turn of {sanitizer}: {why}:\n    {', '.join(names)}")


def write(folder, sanitizers, programs):
    """What ninja builds and what ctest runs; files of a sanitizer whose turn is another day are empty."""
    folder.mkdir(parents=True, exist_ok=True)
    for sanitizer in sanitizers:
        mine = [program for program in programs if program.sanitizer == sanitizer]
        names = sorted(test for program in mine for test in program.tests)
        escaped = [re.sub(r"([\[\]().*+?^$|\\])", r"\\\1", name) for name in names]
        (folder / f"{sanitizer}.targets").write_text("".join(f"{program.name}\n" for program in mine))
        (folder / f"{sanitizer}.tests").write_text(f"^({'|'.join(escaped)})$\n" if names else "")


def tell(turn, turns, today, unaffordable, left, estimate):
    """Lines for the summary: what is looked at, what is not, and why."""
    total = sum(map(len, turns))
    note(f"sanitizers: turn {turn} of {len(turns)}, about {estimate.seconds(today):.0f} s from nothing: "
         + "; ".join(f"{program.sanitizer} {program.name}" for program in today))
    text = f"sanitizers: {total - len(today)} of {total} programs not looked at: another turn by design"
    if unaffordable:
        text += f" ({len(unaffordable)} of them use what changed since the recorded commit)"
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
    rows = [f"target | {name} | {seconds:.0f}" for name, seconds in sorted(targets.items()) if seconds >= 1]
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
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--changed-seconds", type=float, default=200)
    args = parser.parse_args()
    args.builds = dict(build.partition("=")[::2] for build in args.builds)
    if not args.record and (not args.builds or not set(args.builds) <= set(COMPILING)):
        parser.error("address=BUILD, thread=BUILD or both are needed")
    return args


def main():
    args = parse()
    if args.record:
        return record(args.record.resolve())
    programs, apart, left = [], [], {}
    for sanitizer, build in args.builds.items():
        build = pathlib.Path(build).resolve()
        found, why = read_programs(build, sanitizer)
        programs += found
        apart += [program._replace(objects=sources_in_unity(build, program.objects)) for program in found]
        left |= {(sanitizer, test): reason for test, reason in why.items()}
    if not programs:
        raise SystemExit("error: no test programs in " + ", ".join(args.builds.values()))
    estimate = Estimate(programs, read_costs())
    turns = [programs] if args.whole else deal(programs, estimate, args.seconds)
    if args.show:
        return show(turns, left, estimate)
    turn = turn_of_today(len(turns))
    today, unaffordable = add_changed(turns[turn], programs, changed_programs(apart, changed_files()),
                                      estimate, args.seconds + args.changed_seconds)
    tell(turn, turns, today, unaffordable, left, estimate)
    if args.out:
        write(args.out, args.builds, today)
    return 0


if __name__ == "__main__":
    sys.exit(main())
