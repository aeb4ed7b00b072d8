"""mutations.py --check names every mutation whose text is not in its file exactly once."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "deploy" / "scripts" / "mutations.py"


def check(root, *more):
    done = subprocess.run([sys.executable, str(SCRIPT), "--check", "--root", str(root), *more],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class MutationsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for part in ("common", "controller", "rollout_worker", "trainer_worker"):
            shutil.copytree(ROOT / part, self.root / part)

    def test_all_that_rotted_are_listed_not_the_first_alone(self):
        vanilla = self.root / "trainer_worker/losses/policy/vanilla.cc"
        vanilla.write_text(vanilla.read_text().replace("plain = -advantages * ratio", "plain = 0"))
        overlong = self.root / "controller/reward/overlong.cc"
        overlong.write_text(overlong.read_text() * 2)
        (self.root / "trainer_worker/forward_backward/packing.cc").unlink()
        code, text = check(self.root)
        self.assertEqual(code, 1, text)
        self.assertIn("vanilla.cc has \"plain = -advantages * ratio\" 0 times", text)
        self.assertIn("overlong.cc has \"std::min(-excess\" 2 times", text)
        self.assertIn("trainer_worker/forward_backward/packing.cc is not there", text)
        self.assertEqual(len(text.splitlines()), 5, text)  # two of packing.cc, and the remedy

    def test_a_name_that_no_mutation_has_is_an_error(self):
        code, text = check(self.root, "--only", "a name of none")
        self.assertEqual(code, 1, text)
        self.assertEqual(text, 'no mutation\'s name contains "a name of none": nothing was checked\n')
        self.assertEqual(check(self.root, "--only", "vanilla")[0], 0)


if __name__ == "__main__":
    unittest.main()
