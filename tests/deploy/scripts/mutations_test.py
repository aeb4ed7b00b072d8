"""mutations.py --check names every mutation whose text is not in its file exactly once; what is drawn of a room's
changes depends on the seed alone, and each is made in the copy and put back."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "deploy" / "scripts" / "mutations.py"
sys.path.insert(0, str(SCRIPT.parent))
import mutations  # noqa: E402


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

    def test_equal_seeds_draw_equally_and_a_larger_sample_begins_with_a_smaller_one(self):
        for room in mutations.ROOMS:
            names = [row[0] for row in mutations.sampled(room, 12, 3)]
            self.assertEqual(len(set(names)), 12, names)
            self.assertEqual(names[:5], [row[0] for row in mutations.sampled(room, 5, 3)])
            self.assertNotEqual(names, [row[0] for row in mutations.sampled(room, 12, 4)])

    def test_every_room_has_sources_and_each_change_is_another_text_of_one_of_them(self):
        for room in mutations.ROOMS:
            sources = mutations.sources_of(room)
            self.assertTrue(sources, room)
            for name, file, text, _ in mutations.sampled(room, 20, 1):
                self.assertIn(file, sources)
                self.assertNotEqual(text, (ROOT / file).read_text(), name)

    def verdict(self, builds, fails):
        """Of a change to vanilla.cc, and what the copy's file was while the tests ran."""
        file, seen = "trainer_worker/losses/policy/vanilla.cc", []
        copy = types.SimpleNamespace(root=self.root, programs={"a_test": "a", "b_test": "b"})
        copy.builds = lambda program: seen.append((self.root / file).read_text()) or builds
        copy.fails = lambda test: test in fails
        verdict = mutations.Copy.verdict(copy, file, "changed", ["a_test", "b_test"])
        self.assertEqual(set(seen), {"changed"})
        self.assertEqual((self.root / file).read_text(), (ROOT / file).read_text())
        return verdict

    def test_a_change_is_killed_survives_or_does_not_compile_and_the_copy_is_put_back(self):
        self.assertEqual(self.verdict(True, ["b_test"]), ("killed", "b_test"))
        self.assertEqual(self.verdict(True, []), ("SURVIVED", ""))
        self.assertEqual(self.verdict(False, ["a_test"]), ("not compiled", ""))


if __name__ == "__main__":
    unittest.main()
