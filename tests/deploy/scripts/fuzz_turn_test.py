"""Over all turns of .ci/run every fuzz target is run, and each has inputs to begin with."""
import contextlib
import io
import os
import pathlib
import sys
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy/scripts"))

import fuzz_turn  # noqa: E402  pylint: disable=wrong-import-position

TARGETS = sorted(path.stem for path in (ROOT / "tests/fuzz/targets").glob("*.cc"))


class FuzzTurnTest(unittest.TestCase):
    def choose(self, turn):
        said = io.StringIO()
        with unittest.mock.patch.dict(os.environ, TANDEM_CI_TURN=str(turn)), \
                contextlib.redirect_stderr(said):
            os.environ.pop("TANDEM_CI_NOTES", None)
            return fuzz_turn.choose(reversed(TARGETS)), said.getvalue()

    def test_every_target_has_a_turn_and_a_run_says_what_it_leaves_out(self):
        chosen = [self.choose(turn) for turn in range(len(TARGETS))]
        self.assertEqual(sorted(name for name, _ in chosen), TARGETS)
        for name, said in chosen:
            self.assertIn(f": {name}; {len(TARGETS) - 1} targets not run", said)

    def test_every_target_has_committed_inputs(self):
        self.assertGreaterEqual(len(TARGETS), 8)
        for name in TARGETS:
            self.assertTrue(any((ROOT / "tests/fuzz/corpus" / name).iterdir()), name)


if __name__ == "__main__":
    unittest.main()
