"""The verdict over ctest: every test that exists has run and passed, or it is a failure."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from made_project import configure  # noqa: E402  pylint: disable=wrong-import-position

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "deploy/scripts/test_verdict.py"
sys.path.insert(0, str(SCRIPT.parent))

import test_verdict  # noqa: E402  pylint: disable=wrong-import-position

SKIPS = {"SKIP_RETURN_CODE": "77"}
WAYS = {
    "exits": "exit 1",
    "segv": "kill -SEGV $$",
    "ill": "kill -ILL $$",
    "fpe": "kill -FPE $$",
    "bus": "kill -BUS $$",
    "missing": "/no/such/program",
    "slow": ("sleep 60", {"TIMEOUT": "1"}),
    "disabled": ("true", {"DISABLED": "ON"}),
}


class VerdictTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.table = self.folder / "undependable.txt"
        self.notes = self.folder / "notes"

    def verdict(self, tests, *arguments, extra=""):
        """(exit code, output, notes) of a project with these tests."""
        build = configure(self.folder, tests, extra)
        self.notes.write_text("")
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "--build", str(build), "--jobs", "4", "--table",
             str(self.table), *arguments], capture_output=True, text=True, check=False,
            env=os.environ | {"TANDEM_CI_NOTES": str(self.notes)})
        return done.returncode, done.stdout + done.stderr, self.notes.read_text()

    def once_bad(self, name, how="exit 1"):
        """A test that fails in this way the first time it runs."""
        return f"test -e {self.folder}/{name} || {{ touch {self.folder}/{name}; {how}; }}"

    def test_all_passed(self):
        code, text, notes = self.verdict({"a": "true", "b": "true"})
        self.assertEqual((code, notes), (0, ""), text)
        self.assertIn("\ntests: 2 passed, 0 failed, 0 skipped\n", text)

    def test_five_of_five_failing_in_different_ways_fail(self):
        names = ("exits", "segv", "ill", "fpe", "missing")
        code, text, _ = self.verdict({name: WAYS[name] for name in names})
        self.assertNotEqual(code, 0)
        self.assertIn("tests: 0 passed, 5 failed, 0 skipped", text)
        self.assertNotIn("once more", text)

    def test_every_way_to_fail_fails_alone_too_and_is_told(self):
        told = {"exits": "Failed", "segv": "SEGFAULT", "ill": "ILLEGAL", "fpe": "NUMERICAL",
                "bus": "Bus error", "missing": "Not Run: Unable to find executable",
                "slow": "Timeout", "disabled": "Disabled"}
        build = configure(self.folder, {"good": "true", **WAYS})
        for name, how in told.items():
            with self.subTest(name):
                code, text, _ = self.verdict({"good": "true", **WAYS}, "--", "-R", f"^(good|{name})$")
                self.assertEqual(code, 1, text)
                self.assertIn(f"failed: {name}: {how}; tried again, alone: failed, {how}", text)
        self.assertFalse(self.table.exists())
        self.assertTrue((build / "Testing").exists())

    def test_two_known_failures_do_not_hide_others(self):
        # What the first version of the script forgot: Not Run and signals beside one or two "Failed".
        tests = {"flaky": self.once_bad("flaky"), "ill": WAYS["ill"], "missing": WAYS["missing"]}
        code, text, _ = self.verdict(tests)
        self.assertEqual(code, 1)
        self.assertIn("3 tests failed: at most 2 are tried a second time, so none is", text)

    def test_what_fails_once_passes_is_named_and_entered(self):
        tests = {"good": "true", "shaky": self.once_bad("shaky", "kill -SEGV $$")}
        code, text, notes = self.verdict(tests)
        self.assertEqual(code, 0, text)
        self.assertIn("not dependable: shaky failed (SEGFAULT) and passed when tried again, alone", notes)
        (row,), wrong = test_verdict.read_table(self.table)
        self.assertEqual((row.test, row.cause, row.mended, wrong), ("shaky", "SEGFAULT", "-", []))
        self.assertIn(f"{row.date} | shaky | SEGFAULT | -", notes)
        self.assertIn("tests: 2 passed, 0 failed, 0 skipped", text)

    def test_a_row_that_is_not_mended_is_said_and_not_entered_twice(self):
        self.table.write_text("# head\n2026-01-02 | shaky | Timeout | -\n"
                              "2026-01-01 | good | Failed | a fixed port\n")
        tests = {"good": "true", "shaky": self.once_bad("shaky")}
        code, _, notes = self.verdict(tests)
        self.assertEqual(code, 0)
        self.assertIn("shaky is known not to be dependable since 2026-01-02 (Timeout)", notes)
        self.assertNotIn("good is known", notes)
        self.assertEqual(len(test_verdict.read_table(self.table)[0]), 2)
        self.assertNotIn("shaky", self.verdict(tests, "--", "-R", "good")[2])

    def test_a_mended_test_that_fails_again_gets_a_row_of_its_own(self):
        self.table.write_text("2026-01-01 | shaky | Failed | a fixed port\n")
        self.verdict({"shaky": self.once_bad("shaky")})
        self.assertEqual([row.mended for row in test_verdict.read_table(self.table)[0]],
                         ["a fixed port", "-"])

    def test_a_damaged_table_fails(self):
        self.table.write_text("shaky failed today\n")
        code, text, _ = self.verdict({"good": "true"})
        self.assertEqual(code, 1)
        self.assertIn("undependable.txt:1: not a row", text)

    def test_without_a_second_try_one_failure_is_enough(self):
        code, text, _ = self.verdict({"shaky": self.once_bad("shaky")}, "--once")
        self.assertEqual(code, 1)
        self.assertNotIn("once more", text)

    def test_a_sanitizers_report_gets_no_second_try(self):
        how = "echo WARNING: ThreadSanitizer: data race; exit 66"
        code, text, _ = self.verdict({"racy": self.once_bad("racy", how)})
        self.assertEqual(code, 1)
        self.assertIn("racy is not tried again", text)

    def test_a_test_that_skips_at_its_second_try_has_failed(self):
        bad = f"test -e {self.folder}/s && echo skipped: odd && exit 77; touch {self.folder}/s; exit 1"
        code, text, _ = self.verdict({"odd": (bad, SKIPS)})
        self.assertEqual(code, 1)
        self.assertIn("tried again, alone: skipped", text)

    def test_skips_are_named_with_their_reason(self):
        code, text, notes = self.verdict({
            "gpu": ("echo start; echo no GPU: no driver; echo; exit 77", SKIPS),
            "data": ("echo skipped: no folder x; echo bye; exit 77", SKIPS), "good": "true"})
        self.assertEqual(code, 0, text)
        self.assertIn("test skipped: gpu: no GPU: no driver\n", notes)
        self.assertIn("test skipped: data: skipped: no folder x\n", notes)
        self.assertIn("tests: 1 passed, 0 failed, 2 skipped", text)

    def test_a_skip_without_a_line_that_says_why_has_failed(self):
        tests = {"silent": "", "words": "echo I was skipped: yes", "empty": "echo 'skipped: '"}
        code, text, notes = self.verdict({name: (f"{how or ':'}; exit 77", SKIPS) for name, how in tests.items()})
        self.assertEqual((code, notes), (1, ""), text)
        for name in tests:
            self.assertIn(f"failed: {name}: exit code 77, which is for a skip, and no line \"skipped: REASON\"", text)

    def test_a_skip_after_a_failure_has_failed(self):
        faults = {"catch2": "x_test.cc:12: FAILED:", "unittest": "FAIL: test_x (x_test.X.test_x)",
                  "setup": "ERROR: setUpClass (x_test.X)",
                  "asan": "==1==ERROR: AddressSanitizer: heap-use-after-free on address 0x1"}
        code, text, _ = self.verdict({name: (f"echo '{how}'; echo skipped: no folder; exit 77", SKIPS)
                                      for name, how in faults.items()})
        self.assertEqual(code, 1)
        self.assertIn("tests: 0 passed, 4 failed, 0 skipped", text)
        self.assertIn("failed: catch2: exit code 77, which is for a skip, and an assertion in it failed: "
                      "x_test.cc:12: FAILED:", text)
        self.assertIn("failed: asan: exit code 77, which is for a skip, and its output holds a sanitizer's report",
                      text)

    def test_a_success_whose_output_tells_of_a_failure_has_failed(self):
        faults = {"tsan": "WARNING: ThreadSanitizer: data race (pid=1)", "lsan": "==1==ERROR: LeakSanitizer: leaks",
                  "ubsan": "a.cc:3:4: runtime error: shift exponent 70 is too large",
                  "child": "x_test.cc:12: FAILED:", "none": "No tests ran", "nothing": "Ran 0 tests in 0.000s"}
        # What a test prints later does not push the report out of what is looked at.
        code, text, _ = self.verdict({name: f"echo '{how}'; seq 1 20000" for name, how in faults.items()})
        self.assertEqual(code, 1)
        self.assertIn("tests: 0 passed, 6 failed, 0 skipped", text)
        self.assertIn("failed: tsan: exit code 0, and its output holds a sanitizer's report: WARNING: Thread", text)
        self.assertIn("failed: child: exit code 0, and an assertion in it failed", text)
        self.assertIn("failed: nothing: exit code 0, and no test of it ran", text)
        self.assertEqual(self.verdict({"lsan": f"echo '{faults['lsan']}'"})[0], 1)

    def test_a_large_allocation_that_a_sanitizer_refuses_is_no_report(self):
        how = "echo '==1==WARNING: AddressSanitizer failed to allocate 0x4000000000000000 bytes'"
        self.assertEqual(self.verdict({"large": how})[0], 0)

    def test_a_program_of_catch2_that_ends_early_has_failed(self):
        def program(said):
            return f"/bin/sh -c [==[echo '{said}']==] --warn NoTests"

        good = {"all": program("All tests passed (3 assertions in 1 test case)"),
                "none": program("test cases: 1 | 1 passed")}
        code, text, _ = self.verdict(good)
        self.assertEqual(code, 0, text)
        code, text, _ = self.verdict(good | {"early": program("listening")})
        self.assertEqual(code, 1)
        self.assertIn("failed: early: exit code 0 before Catch2 came to its end", text)

    def test_parts_that_did_not_run_are_named(self):
        code, text, notes = self.verdict({
            "python": "echo Ran 9 tests in 1s; echo; echo 'OK (skipped=2)'", "good": "echo OK",
            "ranks": "echo not run: it needs two GPUs; echo \"  not run: it needs two GPUs\"; echo not run: no NCCL"})
        self.assertEqual(code, 0, text)
        self.assertIn("test skipped in part: python: OK (skipped=2)\n", notes)
        self.assertIn("test skipped in part: ranks: not run: it needs two GPUs; not run: no NCCL\n", notes)
        self.assertEqual(notes.count("\n"), 2)

    def test_properties_that_hide_an_exit_code_fail(self):
        for name, value, body in (("PASS_REGULAR_EXPRESSION", "figure", "echo figure; exit 3"),
                                  ("WILL_FAIL", "ON", "exit 3")):
            code, text, _ = self.verdict({"hidden": (body, {name: value}), "good": "true"})
            self.assertEqual(code, 1)
            self.assertIn(f"failed: hidden has the property {name}", text)
            self.assertIn("tests: 2 passed", text)

    def test_any_other_way_to_skip_fails(self):
        code, text, _ = self.verdict({
            "three": ("exit 3", {"SKIP_RETURN_CODE": "3"}), "undeclared": "exit 77",
            "words": ("echo later", {"SKIP_REGULAR_EXPRESSION": "later"})})
        self.assertEqual(code, 1)
        self.assertIn("tests: 0 passed, 3 failed, 0 skipped", text)

    def test_no_test_is_no_success(self):
        code, text, _ = self.verdict({"a": "true"}, "--", "-R", "nothing")
        self.assertEqual(code, 1)
        self.assertIn("no test has been chosen", text)
        self.assertEqual(self.verdict({})[0], 1)

    def test_arguments_that_only_show_are_passed_on(self):
        code, text, _ = self.verdict({"a": "true"}, "--", "-N")
        self.assertEqual(code, 0)
        self.assertIn("Total Tests: 1", text)

    def test_an_option_that_ctest_passes_over_is_refused_and_no_test_runs(self):
        code, text, _ = self.verdict({"a": "true"}, "--", "--foo", "-R", "a", "-j4", "--test-dir=x")
        self.assertEqual(code, 64)
        self.assertIn("ctest has no option --foo;", text)
        self.assertNotIn("Test #1", text)
        self.assertEqual(self.verdict({"a": "true"}, "--", "-j2", "-L", "unit", "-N")[0], 0)

    def test_an_unknown_build_fails(self):
        done = subprocess.run([sys.executable, str(SCRIPT), "--build", str(self.folder / "none")],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)


class JudgeTest(unittest.TestCase):
    GOOD = ('<?xml version="1.0"?><testsuite tests="2"><testcase name="a" status="run"/>'
            '<testcase name="b" status="run"/></testsuite>')

    def judge(self, text, expected=("a", "b"), code=0):
        with tempfile.TemporaryDirectory() as folder:
            junit = pathlib.Path(folder) / "junit.xml"
            if text is not None:
                junit.write_text(text)
            results, wrong = test_verdict.judge(list(expected), junit, code, folder + "/log")
        return [name for name, result in results.items() if result.verdict == "failed"], wrong

    def test_whole_and_good(self):
        self.assertEqual(self.judge(self.GOOD), ([], []))

    def test_missing_cut_short_or_empty_files_fail_every_test(self):
        for text in (None, "", self.GOOD[:-20], self.GOOD[:70]):
            failed, wrong = self.judge(text)
            self.assertEqual((failed, len(wrong)), (["a", "b"], 1), text)

    def test_a_listed_test_without_a_result_has_failed(self):
        self.assertEqual(self.judge(self.GOOD, ("a", "b", "c"))[0], ["c"])

    def test_a_result_that_was_not_listed_is_a_problem(self):
        self.assertIn("which it had not listed", self.judge(self.GOOD, ("a",))[1][0])

    def test_an_exit_code_that_no_result_explains_is_a_problem(self):
        for code in (8, 1, 255, -9, 134):
            self.assertIn(f"exit code {code}", self.judge(self.GOOD, code=code)[1][0])
        bad = self.GOOD.replace('name="a" status="run"', 'name="a" status="fail"')
        self.assertEqual(self.judge(bad, code=8), (["a"], []))
        self.assertEqual(len(self.judge(bad, code=-11)[1]), 1)

    def test_an_unknown_status_has_failed(self):
        self.assertEqual(self.judge(self.GOOD.replace('"run"', '"maybe"', 1))[0], ["a"])

    def test_one_name_twice_is_a_problem(self):
        twice = self.GOOD.replace('name="b"', 'name="a"')
        self.assertEqual(len(self.judge(twice, ("a", "a"))[1]), 2)


if __name__ == "__main__":
    unittest.main()
