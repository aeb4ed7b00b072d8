"""Over all turns of .ci/run every fuzz target is built and run once."""
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy/scripts"))

import fuzz_turns  # noqa: E402  pylint: disable=wrong-import-position


class FuzzTurnsTest(unittest.TestCase):
    def test_every_target_is_in_one_turn(self):
        turns = fuzz_turns.read_turns(fuzz_turns.TURNS.read_text(encoding="utf-8"))
        self.assertEqual(fuzz_turns.wrong_with(turns, fuzz_turns.targets_of()), [])
        self.assertTrue(all(len(turn) <= 2 for turn in turns), "a turn has time for two targets")

    def test_a_target_in_no_turn_in_two_or_that_is_none_is_named(self):
        turns = fuzz_turns.read_turns("# head\na b  # why\n\nb gone\n")
        self.assertEqual(turns, [["a", "b"], ["b", "gone"]])
        self.assertEqual(fuzz_turns.wrong_with(turns, ["a", "b", "new"]),
                         ["new is in no turn", "b is in 2 turns", "there is no target gone"])

    def run_at(self, turn):
        """(names, notes) of that turn."""
        with tempfile.TemporaryDirectory() as folder:
            out, notes = pathlib.Path(folder, "out"), pathlib.Path(folder, "notes")
            with unittest.mock.patch.dict(os.environ, TANDEM_CI_TURN=str(turn), TANDEM_CI_NOTES=str(notes)), \
                    unittest.mock.patch("sys.stdout", io.StringIO()), \
                    unittest.mock.patch("sys.argv", ["fuzz_turns.py", "--out", str(out)]):
                self.assertEqual(fuzz_turns.main(), 0)
            return out.read_text().split(), notes.read_text()

    def test_all_turns_together_run_every_target_and_tell_of_the_others(self):
        seen = []
        for turn in range(len(fuzz_turns.read_turns(fuzz_turns.TURNS.read_text(encoding="utf-8")))):
            names, notes = self.run_at(turn)
            total = len(fuzz_turns.targets_of())
            self.assertIn(f"{total - len(names)} of {total} targets not run: another turn by design", notes)
            self.assertIn(", ".join(names), notes)
            seen += names
        self.assertEqual(sorted(seen), fuzz_turns.targets_of())

    def test_without_clang_the_section_fails_and_says_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            for directory in os.environ["PATH"].split(":"):
                for program in pathlib.Path(directory).glob("*"):
                    link = pathlib.Path(folder, program.name)
                    if not program.name.startswith("clang") and not link.is_symlink():
                        link.symlink_to(program)
            env = dict(os.environ, PATH=folder, TANDEM_BUILD_DIR=f"{folder}/build", TANDEM_CI_TURN="0")
            done = subprocess.run([str(ROOT / "deploy/fuzz.sh"), "--turn", "--seconds", "60"], env=env,
                                  capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("clang++ is missing", done.stderr)
        self.assertIn("deploy/setup.sh --dev", done.stderr)


if __name__ == "__main__":
    unittest.main()
