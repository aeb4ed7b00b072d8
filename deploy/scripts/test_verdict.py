#!/usr/bin/env python3
"""Runs ctest and says whether every test that exists has run and passed.

  deploy/scripts/test_verdict.py --build DIR [--jobs N] [--once] [--under WORDS] [--table FILE]
                                 [-- ctest arguments]

The list of tests comes from ctest's JSON, asked with the same arguments; what became of each comes
from the JUnit file that ctest writes. A test has passed, or has skipped itself with exit code 77 and a
line "skipped: REASON" or "no GPU: REASON", which is printed, or has failed: a missing program, a disabled
test, a signal, a timeout and a test that the JUnit file does not know are failures. So is a JUnit
file that is missing or cut short, and an exit code of ctest that the file does not explain.

Even with exit code 0 or 77 a test has failed if its output contains a sanitizer's report or a failed
assertion, or says that no test ran, or if a program of Catch2 did not print its closing line. A part of
a test that did not run is named. Properties that make ctest ignore an exit code are refused.

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
SKIP_REASON = re.compile(r"^(?:skipped|no GPU): +\S.*", re.M)
# AddressSanitizer says "WARNING: AddressSanitizer failed to allocate" of what is not an error: without a colon.
SANITIZER_REPORT = re.compile(r"^.*?(?:(?:ERROR|WARNING|FATAL): \w+Sanitizer:|: runtime error: ).*", re.M)
# As Catch2 and unittest print it.
FAILED_ASSERTION = re.compile(r"^\S.*:\d+: FAILED:|^(?:FAIL|ERROR): (?:test|setUp|tearDown).*", re.M)
NO_TEST_RAN = re.compile(r"^(?:No tests ran|Ran 0 tests)\b", re.M)
CATCH2_END = re.compile(r"^(?:All tests passed \(|test cases: )", re.M)
CATCH2_ARGUMENT = "NoTests"  # of --warn, with which CMake's functions start every program of Catch2
# unittest's count of tests that skipped themselves, what NotRun() of tests/gpu/gpu.h prints, and a WARN("not run: ...")
# of Catch2, which indents it.
PARTS = re.compile(r"^OK \(.*?skipped=\d+.*\)|^ *not run: .*", re.M)
BLIND = ("PASS_REGULAR_EXPRESSION", "WILL_FAIL")  # with these ctest ignores or inverts an exit code
# All of it is looked at: 0 is no limit.
OUTPUT = ["--output-on-failure", "--test-output-size-passed", "0", "--test-output-size-failed", "0"]
# With these ctest runs no test: there is nothing to judge.
SHOWS = ("-N", "--show-only", "--print-labels", "--help", "-h", "--version")


class Result(typing.NamedTuple):
    verdict: str  # passed, skipped, failed
    how: str = ""  # the reason; of a test that passed, which part of it did not run
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


def unknown_options(arguments):
    """Those of the arguments that ctest does not have: it passes over them in silence and runs every test."""
    text = subprocess.run(["ctest", "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    known = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", text))
    options = [argument.split("=")[0] for argument in arguments if re.match("--?[A-Za-z]", argument)]
    # As make does, ctest takes a number of jobs in the same word.
    return [option for option in options if option not in known and not re.fullmatch(r"-j\d+", option)]


def tests_of(build, arguments):
    """The tests that ctest would run, as its JSON has them; raises where it cannot say."""
    done = subprocess.run(["ctest", "--test-dir", str(build), *arguments, "--show-only=json-v1"],
                          stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)["tests"]


def names_of(build, arguments):
    return [test["name"] for test in tests_of(build, arguments)]


def blind_spots(tests):
    """Lines about tests of whose exit code ctest knows nothing."""
    return [f"{test['name']} has the property {one['name']}, with which ctest does not judge it by its exit "
            "code: tests/gpu/expect_output.py asks for output and exit code"
            for test in tests for one in test.get("properties", []) if one["name"] in BLIND]


def fault_in(text):
    """What the output of a test that an exit code calls passed or skipped says against it, or ""."""
    for pattern, what in ((SANITIZER_REPORT, "its output holds a sanitizer's report"),
                          (FAILED_ASSERTION, "an assertion in it failed"), (NO_TEST_RAN, "no test of it ran")):
        found = pattern.search(text)
        if found:
            return f"{what}: {found[0].strip()}"[:240]
    return ""


def result_of_skip(text):
    """What a test that exited with 77 has become."""
    fault, reasons = fault_in(text), SKIP_REASON.findall(text)
    if fault:
        return Result("failed", f"exit code 77, which is for a skip, and {fault}", text)
    if not reasons:
        return Result("failed", "exit code 77, which is for a skip, and no line \"skipped: REASON\" or "
                      "\"no GPU: REASON\"", text)
    return Result("skipped", reasons[-1].strip()[:240], text)


def result_of_pass(text):
    """What a test that exited with 0 has become."""
    fault, parts = fault_in(text), dict.fromkeys(map(str.strip, PARTS.findall(text)))
    if fault:
        return Result("failed", f"exit code 0, and {fault}", text)
    return Result("passed", "; ".join(parts)[:240], text)


def result_of(case):
    """What a <testcase> says. Whatever is not known to be good has failed."""
    text = case.findtext("system-out") or ""
    status, skipped = case.get("status"), case.find("skipped")
    failure = case.find("failure") if case.find("failure") is not None else case.find("error")
    if skipped is not None and skipped.get("message") == SKIP:
        return result_of_skip(text)
    if status == "run" and skipped is None and failure is None:
        return result_of_pass(text)
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


def judge(expected, junit, code, log, catch2=()):
    """({name: Result} of all expected tests, [problems that no single test explains]). `catch2` are tests
    that end with Catch2's closing line."""
    found, wrong = read_junit(junit)
    ways, results = ways_of(log), {}
    for name in expected:
        result = found.get(name, Result("failed", "it is not among ctest's results"))
        if result.how == "Failed":
            result = result._replace(how=ways.get(name, "Failed"))
        if name in catch2 and result.verdict == "passed" and not CATCH2_END.search(result.text):
            result = result._replace(verdict="failed", how="exit code 0 before Catch2 came to its end")
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


def run_ctest(build, arguments, tests, stem):
    """Runs ctest and judges `tests`."""
    folder = build / "Testing"
    folder.mkdir(exist_ok=True)
    junit, log = folder / f"{stem}.xml", folder / f"{stem}.log"
    for old in (junit, log):
        old.unlink(missing_ok=True)
    done = subprocess.run(["ctest", "--test-dir", str(build), *OUTPUT, *arguments,
                           "--output-log", str(log), "--output-junit", str(junit)], check=False)
    catch2 = {test["name"] for test in tests if CATCH2_ARGUMENT in test.get("command", [])}
    return judge([test["name"] for test in tests], junit, done.returncode, log, catch2)


def only(name):
    """ctest arguments that choose this test."""
    return ["-R", "^" + re.sub(r"([\[\]().*+?^$|\\])", r"\\\1", name) + "$", "--no-tests=error"]


def try_again(build, failed):
    """{name: Result} of a second try of each, alone."""
    results = {}
    for name in failed:
        say(f"once more, alone: {name}")
        again, wrong = run_ctest(build, only(name), tests_of(build, only(name)), "again")
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
        elif result.verdict == "passed" and result.how:
            note(f"test skipped in part: {name}: {result.how}")
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
        say(f"{name} is not tried again: a sanitizer's report is not a chance failure")
    return [name for name in failed if name not in reported]


def verdict(args):
    """Whether all is well."""
    rows, wrong = read_table(args.table)
    tests = tests_of(args.build, args.ctest)
    expected = [test["name"] for test in tests]
    wrong += blind_spots(tests)
    for row in rows:
        if row.mended == "-" and row.test in expected:
            note(f"{row.test} is known not to be dependable since {row.date} ({row.cause}), and its "
                 "cause is not mended")
    if not expected:
        wrong.append("no test has been chosen: ctest's arguments match none")
        return tell({}, wrong)
    results, problems = run_ctest(args.build, ["-j", str(args.jobs), *args.ctest], tests, "junit")
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
    unknown = unknown_options(args.ctest)
    if unknown:
        say(f"failed: ctest has no option {', '.join(unknown)}; ctest --help lists those that it has, such as -R NAME")
        return 64
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
