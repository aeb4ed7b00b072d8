"""stress_tests.py counts failures by test, disturbs what runs, and leaves nothing behind."""
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "deploy/scripts/stress_tests.py"
sys.path.insert(0, str(SCRIPT.parent))

import stress_tests  # noqa: E402  pylint: disable=wrong-import-position
from made_project import configure  # noqa: E402  pylint: disable=wrong-import-position


def running(words):
    """Ids of the processes whose command line is this."""
    found = []
    for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if file.read_bytes().decode(errors="replace").split("\0")[:-1] == words:
                found.append(int(file.parent.name))
        except OSError:
            pass  # it has just ended
    return found


class StressTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def command(self, tests, *arguments):
        build = configure(self.folder, tests)
        return [sys.executable, str(SCRIPT), "--build", str(build), "--jobs", "4", "--busy", "1", *arguments]

    def stress(self, tests, *arguments):
        done = subprocess.run(self.command(tests, *arguments), capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_a_flaky_test_is_counted_by_its_runs(self):
        count = self.folder / "count"
        flaky = f"echo x >>{count}; exit $(($(wc -l <{count}) % 2))"
        code, text = self.stress({"flaky": flaky, "good": "true", "ill": "kill -ILL $$"}, "--runs", "4",
                                 "--stop-seconds", "0")
        self.assertEqual(code, 1, text)
        self.assertRegex(text, r"\n +4  ill  \(run 1: ILLEGAL; run 2: ILLEGAL;")
        self.assertRegex(text, r"\n +2  flaky  \(run 1: Failed; run 3: Failed\)")
        self.assertNotIn("  good  ", text)
        logs = sorted(path.name for path in (self.folder / "build/Testing/stress").iterdir())
        self.assertEqual(logs, [f"run-0{n}.log" for n in (1, 2, 3, 4)])

    def test_good_tests_are_stopped_go_on_and_pass(self):
        step = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done"
        code, text = self.stress({"a": step, "b": step}, "--runs", "2", "--stop-seconds", "0.3")
        self.assertEqual(code, 0, text)
        self.assertTrue(all(int(stops) > 0 for stops in re.findall(r"(\d+) stops", text)), text)
        self.assertIn("failures in 2 runs of 2 tests, seed 1:\n       none", text)

    def test_a_test_that_depends_on_time_is_found(self):
        late = "b=$(date +%s%N); sleep 1; test $(($(date +%s%N) - b)) -lt 1500000000"
        code, text = self.stress({"late": late}, "--runs", "3", "--stop-seconds", "5")
        self.assertEqual(code, 1, text)
        self.assertRegex(text, r"\n +\d  late  \(run ")

    def test_what_a_test_leaves_behind_is_named_and_killed(self):
        code, text = self.stress({"leaver": "setsid sleep 98765 >/dev/null 2>&1 &"}, "--runs", "1")
        self.assertEqual(code, 1)
        self.assertIn("run 1 left a process: sleep 98765", text)
        self.assertEqual(running(["sleep", "98765"]), [])

    def test_a_run_that_does_not_end_is_ended(self):
        tests = {"good": "true", "hangs": "exec sleep 98766"}
        code, text = self.stress(tests, "--runs", "1", "--run-seconds", "5", "--stop-seconds", "0")
        self.assertEqual(code, 1)
        self.assertIn("run 1 did not end within 5 s", text)
        self.assertRegex(text, r"run 1 of 1: did not end \(.*hangs\), 0 failed before, ")
        self.assertRegex(text, r"\n +1  hangs  \(run 1: did not end\)\n")
        self.assertTrue((self.folder / "build/Testing/stress/run-01.log").exists())
        self.assertEqual(running(["sleep", "98766"]), [])

    def test_what_had_begun_and_what_had_failed_is_read_from_ctests_output(self):
        log = self.folder / "log"
        log.write_text("""Test project /b
      Start   1: good
      Start   2: hangs here
1/5 Test   #1: good .............................   Passed    0.01 sec
      Start   3: bad one
2/5 Test   #3: bad one ..........................***Failed    0.01 sec
what it printed
      Start  40: odd
3/5 Test  #40: odd ..............................***Exception: SegFault  1.20 sec
      Start  41: skips
4/5 Test  #41: skips ............................***Skipped   0.03 sec
      Start   5: cut short""")
        self.assertEqual(stress_tests.read_unended(log), (
            ["hangs here", "cut short"], {"bad one": "Failed", "odd": "Exception: SegFault"}))

    def test_nothing_outlives_an_interrupted_run(self):
        with subprocess.Popen(self.command({"long": "exec sleep 98767"}, "--runs", "9"),
                              stdout=subprocess.PIPE, text=True) as process:
            end = time.monotonic() + 30
            while not running(["sleep", "98767"]) and time.monotonic() < end:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 143)
        self.assertIn("failures in 0 runs", out)
        self.assertEqual(running(["sleep", "98767"]), [])

    def test_no_test_is_an_error(self):
        self.assertEqual(self.stress({"a": "true"}, "--", "-R", "none")[0], 1)


if __name__ == "__main__":
    unittest.main()
