"""mutations.py --check names every mutation whose text is not in its file exactly once; what is drawn of a room's
changes depends on the seed alone, and each is made in the copy and put back. A run that is stopped ends its tests."""
import io
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "deploy" / "scripts" / "mutations.py"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(SCRIPT.parent))
import mutations  # noqa: E402
from made_project import configure  # noqa: E402

# Runs mutations.py on a made tree and its copy, which needs no compiler: MADE is the folder of both.
RUN_ON_MADE = """
import pathlib, sys
import mutations
made = pathlib.Path(sys.argv.pop(1))
class MadeCopy(mutations.Copy):
    def __init__(self, work, build, alone):
        self.root, self.build, self.programs = made / "copy", made / "copy/build", {"loops": "loops"}
    def builds(self, program):
        return True
mutations.Copy, mutations.ROOT = MadeCopy, made / "tree"
mutations.MUTATIONS = [("made", "a.cc", "plain", "changed", "loops")]
sys.exit(mutations.main())
"""


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

    @unittest.skipUnless(os.environ.get("TANDEM_TEST_BUILD"), "TANDEM_TEST_BUILD names no build, whose tests would be read")
    def test_every_test_that_is_to_notice_a_change_is_one_of_the_build(self):
        programs = mutations.Build(ROOT, pathlib.Path(os.environ["TANDEM_TEST_BUILD"])).programs
        named = {test for _, tests in mutations.ROOMS.values() for test in tests} | {row[4] for row in mutations.MUTATIONS}
        self.assertEqual(named - programs.keys(), set())

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


    def test_the_build_of_the_copy_lies_where_a_clones_does_and_stays_when_the_copy_is_made_again(self):
        tree, work = self.root / "tree", self.root / "work"
        tree.mkdir()
        (tree / "a.cc").write_text("plain")
        subprocess.run(["git", "init", "-q", tree], check=True)
        with unittest.mock.patch.object(mutations, "ROOT", tree), \
                unittest.mock.patch.object(mutations.Copy, "_configure"):
            copy = mutations.Copy(work, self.root / "build", set())
            self.assertEqual(copy.build, copy.root / "build")  # other paths would be strange to ccache
            copy.build.mkdir()
            (copy.build / "a.o").touch()
            (copy.root / "of_an_earlier_run.cc").touch()
            mutations.Copy(work, self.root / "build", set())
        self.assertEqual(sorted(str(path.relative_to(copy.root)) for path in copy.root.rglob("*")),
                         ["a.cc", "build", "build/a.o"])

    def test_too_few_that_are_killed_fail(self):
        def told(killed, survived, floor):
            return mutations.too_few("made", {"killed": killed, "SURVIVED": survived, "not compiled": 9}, floor)
        self.assertEqual(told(5, 0, 1), "")
        self.assertIn("made: 4 of 5 mutations were killed, and at least 100% are to be", told(4, 1, 1))
        self.assertEqual(told(3, 3, 0.5), "")
        self.assertIn("2 of 5 mutations were killed, and at least 50%", told(2, 3, 0.5))
        self.assertIn("2 mutations were tried, and fewer than 3 tell nothing", told(2, 0, 0.5))
        self.assertEqual(told(1, 0, 1), "")  # one that was asked for by its name

    def test_none_is_begun_after_the_deadline_and_survivors_are_told(self):
        verdicts = iter([("SURVIVED", ""), ("killed", "a_test")])
        copy = types.SimpleNamespace(verdict=lambda *_: next(verdicts))
        rows = [(f"change {number}", "a.cc", "text", ["a_test"]) for number in range(3)]
        with tempfile.NamedTemporaryFile() as notes, unittest.mock.patch("sys.stdout", io.StringIO()), \
                unittest.mock.patch.dict(os.environ, TANDEM_CI_NOTES=notes.name), \
                unittest.mock.patch("time.monotonic", side_effect=[1, 2, 3, 4, 10]):
            counts = mutations.look_at(copy, rows, deadline=5)
            told = pathlib.Path(notes.name).read_text()
        self.assertEqual(counts, {"killed": 1, "SURVIVED": 1, "not compiled": 0})
        self.assertEqual(told, "mutations: no test fails with this change: change 0\n")

    def test_over_the_turns_every_room_is_drawn_and_a_turn_draws_equally(self):
        rooms = set()
        for turn in range(len(mutations.ROOMS)):
            with unittest.mock.patch.dict(os.environ, TANDEM_CI_TURN=str(turn), TANDEM_CI_NOTES=""), \
                    unittest.mock.patch("sys.stdout", io.StringIO()):
                drawn = mutations.drawn_by_commit()
                self.assertEqual(drawn, mutations.drawn_by_commit())
            rooms.add(drawn[0])
        self.assertEqual(rooms, set(mutations.ROOMS))


class StoppedRunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.made = pathlib.Path(folder.name)
        for part in ("tree", "copy"):
            (self.made / part).mkdir()
            (self.made / part / "a.cc").write_text("plain")
        os.mkfifo(self.made / "began")
        self.began = os.open(self.made / "began", os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, self.began)

    def await_test(self):
        """A descriptor of the test's process, once that runs."""
        self.assertTrue(select.select([self.began], [], [], 60)[0], "the test was not started")
        process = os.pidfd_open(int(os.read(self.began, 100)))
        self.addCleanup(os.close, process)
        return process

    def test_a_test_that_never_ends_is_ended_with_the_run_and_the_copy_is_put_back(self):
        source = self.made / "copy/a.cc"
        configure(self.made / "copy", {"loops": f"grep -q plain {source} && exit 0; echo $$ > {self.made}/began; "
                                                "exec sleep 600"})
        with subprocess.Popen([sys.executable, "-c", RUN_ON_MADE, str(self.made)], start_new_session=True,
                              cwd=SCRIPT.parent, stdout=subprocess.DEVNULL) as run:
            self.addCleanup(run.kill)
            test = self.await_test()
            self.assertEqual(source.read_text(), "changed")
            run.terminate()
            self.assertEqual(run.wait(60), 143)
        try:
            self.assertTrue(select.select([test], [], [], 10)[0], "the test has outlived the run")
        except AssertionError:
            signal.pidfd_send_signal(test, signal.SIGKILL)
            raise
        self.assertEqual(source.read_text(), "plain")


if __name__ == "__main__":
    unittest.main()
