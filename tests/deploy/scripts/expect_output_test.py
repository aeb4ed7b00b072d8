"""expect_output.py: a program passes by its exit code and its output, not by one of them."""
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def expect(pattern, script, *options):
    """(exit code, output) over a program that is a shell script."""
    done = subprocess.run([sys.executable, str(ROOT / "tests/gpu/expect_output.py"), *options, pattern,
                           "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    return done.returncode, done.stdout


class ExpectOutputTest(unittest.TestCase):
    def test_the_exit_code_and_the_output_are_both_needed(self):
        self.assertEqual(expect("speed [0-9]+ GB/s", "echo figure speed 12 GB/s"), (0, "figure speed 12 GB/s\n"))
        code, text = expect("speed [0-9]+ GB/s", "echo figure speed")
        self.assertEqual(code, 1)
        self.assertIn("nothing that matches", text)
        for end, why in (("exit 3", "exited with 3, and not with 0"), ("kill -SEGV $$", "ended by signal 11"),
                         ("kill -KILL $$", "ended by signal 9")):
            code, text = expect("speed", f"echo speed; {end}")
            self.assertEqual(code, 1, end)
            self.assertIn(why, text)

    def test_a_refusal_needs_its_own_exit_code(self):
        self.assertEqual(expect("damaged", "echo damaged; exit 4", "--code", "4")[0], 0)
        self.assertEqual(expect("too large", "echo too large; exit 77", "--code", "77")[0], 0)
        self.assertEqual(expect("too large", "exit 77", "--code", "77")[0], 1)
        code, text = expect("damaged", "echo damaged", "--code", "4")
        self.assertEqual(code, 1)
        self.assertIn("exited with 0, and not with 4", text)

    def test_a_program_that_skips_itself_is_a_skip(self):
        self.assertEqual(expect("speed", "echo no GPU: no driver; exit 77"), (77, "no GPU: no driver\n"))

    def test_lines_of_both_streams_are_matched_together(self):
        self.assertEqual(expect("one.two", "echo one; echo two >&2")[0], 0)

    def test_a_program_that_is_not_there_has_failed(self):
        done = subprocess.run([sys.executable, str(ROOT / "tests/gpu/expect_output.py"), "x", "/no/program"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/no/program cannot be started", done.stdout)

    def test_no_test_is_judged_by_ctest_by_its_output_alone(self):
        """These properties make ctest ignore an exit code, or take a failure for a success."""
        for path in [*ROOT.glob("tests/**/CMakeLists.txt"), *ROOT.glob("deploy/cmake/*.cmake")]:
            for word in ("PASS_REGULAR_EXPRESSION", "WILL_FAIL", "SKIP_REGULAR_EXPRESSION"):
                self.assertNotIn(word, path.read_text(), path)


if __name__ == "__main__":
    unittest.main()
