#!/usr/bin/env python3
"""Runs ctest and says whether every test that exists has run and passed.

  deploy/scripts/test_verdict.py --build DIR [--jobs N] [--once] [--under WORDS] [--table FILE]
                                 [-- ctest arguments]

The list of tests comes from ctest's JSON, asked with the same arguments; what became of each comes
from the JUnit file that ctest writes. A test has passed, or has skipped itself with exit code 77 (no
GPU, no golden vectors: each is named with its reason), or has failed: a missing program, a disabled
test, a signal, a timeout and a test that the JUnit file does not know are failures. So is a JUnit
file that is missing or cut short, and an exit code of ctest that the file does not explain.

At most two failures are tried a second time, each alone; with more, or with --once, none is, and
neither is one whose output holds a sanitizer's report. A test that passes then is named, and a line
is added to --table (tests/undependable.txt), which a developer commits. Rows there whose cause is
not mended are named in every run that has their tests.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import typing
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
AGAIN = 2  # failures that may be tried a second time
SKIP = "SKIP_RETURN_CODE=77"
SANITIZER_REPORT = re.compile(r"(ERROR|WARNING): \w+Sanitizer|runtime error: ")
# Of a skipped test the last line is its reason; of a failed one the end says most.
OUTPUT = ["--output-on-failure", "--test-output-truncation", "head",
          "--test-output-size-passed", "65536", "--test-output-size-failed", "1048576"]
# With these ctest runs no test: there is nothing to judge.
SHOWS = ("-N", "--show-only", "--print-labels", "--help", "-h", "--version")


class Result(typing.NamedTuple):
    verdict: str  # passed, skipped, failed
    how: str = ""
    text: str = ""


class Row(typing.NamedTuple):
    """One line of the table of tests that are not dependable."""
    date: str
    test: str
    cause: str
    mended: str


def say(text):
    print(f"\033[1m==>\033[0m {text}", flush=True)


def note(text):
    """Printed, and repeated in the summary of .ci/run."""
    say(text)
    notes = os.environ.get("TANDEM_CI_NOTES")
    if notes:
        with open(notes, "a", encoding="utf-8") as file:
            file.write(text + "\n")


def names_of(build, arguments):
    """Names of the tests that ctest would run; raises where it cannot say."""
    done = subprocess.run(["ctest", "--test-dir", str(build), *arguments, "--show-only=json-v1"],
                          stdout=subprocess.PIPE, text=True, check=True)
    return [test["name"] for test in json.loads(done.stdout)["tests"]]


def result_of(case):
    """What a <testcase> says. Whatever is not known to be good has failed."""
    text = case.findtext("system-out") or ""
    status, skipped = case.get("status"), case.find("skipped")
    failure = case.find("failure") if case.find("failure") is not None else case.find("error")
    if skipped is not None and skipped.get("message") == SKIP:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return Result("skipped", lines[-1][:240] if lines else "it gave no reason", text)
    if status == "run" and skipped is None and failure is None:
        return Result("passed")
    if status == "disabled":
        return Result("failed", "Disabled", text)
    if skipped is not None:
        return Result("failed", f"Not Run: {skipped.get('message') or 'no reason'}", text)
    message = failure.get("message") if failure is not None else ""
    return Result("failed", " ".join((message or "Failed").split())[:240], text)


def read_junit(path):
    """({name: Result}, [what is wrong with the file])."""
    try:
        suite = xml.etree.ElementTree.parse(path).getroot()
    except FileNotFoundError:
        return {}, ["ctest wrote no JUnit file: it did not come to its end"]
    except xml.etree.ElementTree.ParseError as error:
        return {}, [f"ctest's JUnit file is damaged or cut short ({error})"]
    results, wrong = {}, []
    for case in suite.iter("testcase"):
        name = case.get("name")
        if name in results:
            wrong.append(f"two tests are named {name}: only one of them could be told from the other")
        results[name] = result_of(case)
    return results, wrong


def ways_of(log):
    """{test: "SEGFAULT", ...}: the word that ctest's closing list has and its JUnit file lacks. It
    only describes a failure, it decides nothing."""
    try:
        text = pathlib.Path(log).read_text(errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r"^\s*\d+ - (.+) \(([^()]+)\)$", text, re.M))


def judge(expected, junit, code, log):
    """({name: Result} of all expected tests, [problems that no single test explains])."""
    found, wrong = read_junit(junit)
    ways, results = ways_of(log), {}
    for name in expected:
        result = found.get(name, Result("failed", "it is not among ctest's results"))
        if result.how == "Failed":
            result = result._replace(how=ways.get(name, "Failed"))
        results[name] = result
    wrong += [f"ctest ran {name}, which it had not listed" for name in found if name not in results]
    if len(set(expected)) != len(expected):
        wrong.append("two tests have one name: "
                     + ", ".join(sorted({name for name in expected if expected.count(name) > 1})))
    failed = any(result.verdict == "failed" for result in results.values())
    # 8 is ctest's "some test failed".
    if code not in (0, 8) or (code == 8 and not failed):
        wrong.append(f"ctest ended with exit code {code}, which its results do not explain")
    return results, wrong


def run_ctest(build, arguments, expected, stem):
    """Runs ctest and judges."""
    folder = build / "Testing"
    folder.mkdir(exist_ok=True)
    junit, log = folder / f"{stem}.xml", folder / f"{stem}.log"
    for old in (junit, log):
        old.unlink(missing_ok=True)
    done = subprocess.run(["ctest", "--test-dir", str(build), *OUTPUT, *arguments,
                           "--output-log", str(log), "--output-junit", str(junit)], check=False)
    return judge(expected, junit, done.returncode, log)


def only(name):
    """ctest arguments that choose this test."""
    return ["-R", "^" + re.sub(r"([\[\]().*+?^$|\\])", r"\\\1", name) + "$", "--no-tests=error"]


def try_again(build, failed):
    """{name: Result} of a second try of each, alone."""
    results = {}
    for name in failed:
        say(f"once more, alone: {name}")
        again, wrong = run_ctest(build, only(name), names_of(build, only(name)), "again")
        result = again.get(name, Result("failed", "it could not be run alone"))
        if wrong and result.verdict == "passed":
            result = Result("failed", wrong[0])
        results[name] = result
    return results


def read_table(path):
    """(rows, [what is wrong with the file])."""
    rows, wrong = [], []
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 4 and all(cells) and re.fullmatch(r"\d{4}-\d\d-\d\d", cells[0]):
            rows.append(Row(*cells))
        else:
            wrong.append(f"{path}:{number}: not a row \"date | test | how it failed | mended\": {line}")
    return rows, wrong


def enter(path, name, how):
    """Notes a test that needed its second try, and adds its row unless one for it stands open."""
    how = how.replace("|", "/")
    note(f"not dependable: {name} failed ({how}) and passed when tried again, alone")
    standing = [row for row in read_table(path)[0] if row.test == name and row.mended == "-"]
    if standing:
        return
    line = f"{datetime.date.today().isoformat()} | {name} | {how} | -"
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
        note(f"added to {path.name}, commit it: {line}")
    except OSError as error:
        note(f"{path} cannot be written ({error.strerror}); add this row and commit it: {line}")


def tell(results, wrong):
    """Prints skips, failures, problems and the totals; whether all is well."""
    for name, result in results.items():
        if result.verdict == "skipped":
            note(f"test skipped: {name}: {result.how}")
    for name, result in results.items():
        if result.verdict == "failed":
            say(f"failed: {name}: {result.how}")
    for problem in wrong:
        say(f"failed: {problem}")
    count = {verdict: sum(result.verdict == verdict for result in results.values())
             for verdict in ("passed", "failed", "skipped")}
    print(f"tests: {count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped",
          flush=True)
    return not wrong and count["failed"] == 0


def may_try_again(failed, results):
    """The tests of `failed` that get a second try."""
    if not 1 <= len(failed) <= AGAIN:
        if failed:
            say(f"{len(failed)} tests failed: at most {AGAIN} are tried a second time, so none is")
        return []
    reported = [name for name in failed if SANITIZER_REPORT.search(results[name].text)]
    for name in reported:
        say(f"{name} is not tried again: a sanitizer's report is no chance")
    return [name for name in failed if name not in reported]


def verdict(args):
    """Whether all is well."""
    rows, wrong = read_table(args.table)
    expected = names_of(args.build, args.ctest)
    for row in rows:
        if row.mended == "-" and row.test in expected:
            note(f"{row.test} is known not to be dependable since {row.date} ({row.cause}), and its "
                 "cause is not mended")
    if not expected:
        wrong.append("no test has been chosen: ctest's arguments match none")
        return tell({}, wrong)
    results, problems = run_ctest(args.build, ["-j", str(args.jobs), *args.ctest], expected, "junit")
    wrong += problems
    failed = [name for name, result in results.items() if result.verdict == "failed"]
    if not args.once and not problems:
        for name, again in try_again(args.build, may_try_again(failed, results)).items():
            if again.verdict == "passed":
                enter(args.table, name, results[name].how + (f", {args.under}" if args.under else ""))
                results[name] = again
            else:
                how = f"{results[name].how}; tried again, alone: {again.verdict}, {again.how}"
                results[name] = Result("failed", how)
    return tell(results, wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--once", action="store_true", help="no second try")
    parser.add_argument("--under", default="", help="said beside how a test failed: which build this is")
    parser.add_argument("--table", type=pathlib.Path, default=ROOT / "tests" / "undependable.txt")
    parser.add_argument("ctest", nargs="*")
    args = parser.parse_args()
    args.build = args.build.resolve()
    if any(argument.split("=")[0] in SHOWS for argument in args.ctest):
        return subprocess.run(["ctest", "--test-dir", str(args.build), *args.ctest],
                              check=False).returncode
    try:
        return 0 if verdict(args) else 1
    except subprocess.CalledProcessError as error:
        say(f"failed: {' '.join(error.cmd)} ended with exit code {error.returncode}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
