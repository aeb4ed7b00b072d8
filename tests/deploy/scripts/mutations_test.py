"""mutations.py --check names every mutation whose text is not in its file exactly once; what is drawn of a room's
changes depends on the seed alone, and each is made in the copy and put back. A run that is stopped ends its tests, and
one with a limit has ended by then, whatever a mutant does."""
import io
import math
import os
import pathlib
import re
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
import mutation_builds  # noqa: E402
import mutation_rooms  # noqa: E402
import mutations  # noqa: E402
from made_project import configure  # noqa: E402

# Runs mutations.py on a made tree and its copy, which needs no compiler: MADE is the folder of both.
RUN_ON_MADE = """
import pathlib, sys
import mutations
made = pathlib.Path(sys.argv.pop(1))
class MadeCopy(mutations.Copy):
    def __init__(self, work, build, alone, end):
        mutations.LeftOut.__init__(self, made / "copy", made / "copy/build", end)
        self.programs = {"loops": "loops"}
    def builds(self, program):
        return True
mutations.Copy, mutations.ROOT = MadeCopy, made / "tree"
mutations.MUTATIONS = [("made", "a.cc", "plain", "changed", "loops")]
sys.exit(mutations.main())
"""

# As .ci/run has them.
CI = re.search(r"mutations\.py --turn --sample (\d+) --floor (\S+)", (ROOT / ".ci/run").read_text())
SAMPLE, FLOOR = int(CI[1]), float(CI[2])
KILLED = 0.7  # the part of a room's changes that tests notice, or more (docs/reference/algorithms.md)

POPEN = subprocess.Popen


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
            sources = mutation_rooms.sources_of(room)
            self.assertTrue(sources, room)
            for name, file, text, _ in mutations.sampled(room, 20, 1):
                self.assertIn(file, sources)
                self.assertNotEqual(text, (ROOT / file).read_text(), name)

    def test_a_turn_changes_a_few_files_alone_which_are_those_drawn_first(self):
        whole = [row[1] for row in mutations.sampled("store", 400, 1)]
        few = [row[1] for row in mutations.sampled("store", 12, 1, most_files=4)]
        self.assertEqual(len(few), 12)
        self.assertEqual(set(few), set(list(dict.fromkeys(whole))[:4]))

    @unittest.skipUnless(os.environ.get("TANDEM_TEST_BUILD"), "TANDEM_TEST_BUILD names no build, whose tests would be read")
    def test_every_test_that_is_to_notice_a_change_is_one_of_the_build(self):
        programs = mutations.LeftOut(ROOT, pathlib.Path(os.environ["TANDEM_TEST_BUILD"]), mutations.End()).programs
        named = {test for _, tests in mutations.ROOMS.values() for test in tests} | {row[4] for row in mutations.MUTATIONS}
        named |= {test for tests in mutation_rooms.KERNELS.values() for test in tests}
        self.assertEqual(named - programs.keys(), set())

    def test_the_build_of_the_copy_lies_where_a_clones_does_and_stays_when_the_copy_is_made_again(self):
        tree, work = self.root / "tree", self.root / "work"
        tree.mkdir()
        (tree / "a.cc").write_text("plain")
        subprocess.run(["git", "init", "-q", tree], check=True)
        with unittest.mock.patch.object(mutation_builds, "ROOT", tree), \
                unittest.mock.patch.object(mutations.Copy, "_configure"):
            copy = mutations.Copy(work, self.root / "build", set(), mutations.End())
            self.assertEqual(copy.build, copy.root / "build")  # other paths would be strange to ccache
            copy.build.mkdir()
            (copy.build / "a.o").touch()
            (copy.root / "of_an_earlier_run.cc").touch()
            mutations.Copy(work, self.root / "build", set(), mutations.End())
        self.assertEqual(sorted(str(path.relative_to(copy.root)) for path in copy.root.rglob("*")),
                         ["a.cc", "build", "build/a.o"])

    def told(self, killed, survived, floor, in_turn=False):
        """(what fails, what is noted)."""
        counts = {"killed": killed, "SURVIVED": survived, "not compiled": 9}
        with tempfile.NamedTemporaryFile() as notes, unittest.mock.patch("sys.stdout", io.StringIO()), \
                unittest.mock.patch.dict(os.environ, TANDEM_CI_NOTES=notes.name):
            return mutations.too_few("made", counts, floor, in_turn), pathlib.Path(notes.name).read_text()

    def test_too_few_that_are_killed_fail(self):
        self.assertEqual(self.told(5, 0, 1), ("", ""))
        self.assertIn("made: 4 of 5 mutations were killed, and at least 100% are to be", self.told(4, 1, 1)[0])
        self.assertEqual(self.told(3, 3, 0.5), ("", ""))
        self.assertIn("2 of 5 mutations were killed, and at least 50%", self.told(2, 3, 0.5)[0])
        self.assertIn("2 mutations were tried, and fewer than 3 tell nothing", self.told(2, 0, 0.5)[0])
        self.assertEqual(self.told(1, 0, 1), ("", ""))  # one that was asked for by its name

    def test_in_a_turn_a_few_decide_nothing_and_are_named(self):
        for killed, survived in ((0, 0), (2, 0), (0, 2), (0, 7)):
            wrong, noted = self.told(killed, survived, FLOOR, in_turn=True)
            self.assertEqual(wrong, "")
            self.assertEqual(noted, f"mutations: {killed + survived} of the room made were tried, and fewer than 8 decide "
                             "nothing\n")
        self.assertIn("made: 0 of 8 mutations were killed", self.told(0, 8, FLOOR, in_turn=True)[0])
        self.assertEqual(self.told(1, 7, FLOOR, in_turn=True), ("", ""))

    def test_the_floor_of_ci_fails_where_all_survive_and_by_chance_less_often_than_once_in_10000(self):
        for tried in range(mutations.FEWEST_IN_TURN, SAMPLE + 1):
            self.assertNotEqual(self.told(0, tried, FLOOR, in_turn=True)[0], "", tried)
            failing = [killed for killed in range(tried + 1) if self.told(killed, tried - killed, FLOOR, in_turn=True)[0]]
            chance = sum(math.comb(tried, killed) * KILLED**killed * (1 - KILLED)**(tried - killed) for killed in failing)
            self.assertLess(chance, 1e-4, tried)

    def test_over_the_turns_every_room_is_drawn_and_a_turn_draws_equally(self):
        rooms = set()
        for turn in range(len(mutations.ROOMS) + 1):
            with unittest.mock.patch.dict(os.environ, TANDEM_CI_TURN=str(turn), TANDEM_CI_NOTES=""), \
                    unittest.mock.patch("sys.stdout", io.StringIO()):
                drawn = mutations.drawn_by_commit()
                self.assertEqual(drawn, mutations.drawn_by_commit())
            rooms.add(drawn[0])
        self.assertEqual(rooms, set(mutations.ROOMS) | {"kernels"})

    def test_a_turn_of_kernels_draws_some_of_their_barriers(self):
        def drawn(**chosen):
            arguments = types.SimpleNamespace(**{"sample": 5, "seed": "s", "turn": True, "only": "", **chosen})
            return [row[0] for row in mutations.rows_of("kernels", arguments)]
        every = drawn(turn=False)
        self.assertEqual(len(drawn()), 5)
        self.assertLess(set(drawn()), set(every))
        self.assertEqual(drawn(), drawn(sample=9)[:5])
        self.assertNotEqual(drawn(sample=len(every)), drawn(sample=len(every), seed="t"))


class FakeMachine:
    """Runs commands by saying so: {word of a command: (seconds that it takes, outcome)}, on a clock of its own."""

    def __init__(self, takes):
        self.takes, self.time, self.commands = takes, 1000.0, []

    def now(self):
        return self.time

    def run(self, command, folder, seconds, environment=None):
        del folder, environment
        wanted, outcome = next(take for word, take in self.takes.items() if any(word in part for part in command))
        self.commands.append(command[-1])
        self.time += min(wanted, seconds)
        return outcome if wanted <= seconds else "over"


class LimitsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "a.cc").write_text("plain")

    def copy(self, machine, seconds=float("inf")):
        made = object.__new__(mutations.Copy)
        mutation_builds.Build.__init__(made, self.root, self.root / "build", mutations.End(seconds, machine.now), machine.run)
        made.programs = {"a_test": "a_program", "b_test": "b_program"}
        return made

    def verdict(self, copy, tests):
        try:
            return copy.verdict("a.cc", "changed", tests)
        finally:
            self.assertEqual((self.root / "a.cc").read_text(), "plain")

    def look(self, copy, rows):
        """(counts, printed, noted)."""
        with tempfile.NamedTemporaryFile() as notes, unittest.mock.patch("sys.stdout", io.StringIO()) as printed, \
                unittest.mock.patch.dict(os.environ, TANDEM_CI_NOTES=notes.name):
            counts = mutations.look_at(copy, [(f"change {row}", "a.cc", "changed", ["a_test"]) for row in range(rows)])
            return counts, printed.getvalue(), pathlib.Path(notes.name).read_text()

    def test_a_change_is_killed_survives_or_does_not_compile_and_the_copy_is_put_back(self):
        machine = FakeMachine({"ninja": (5, "passed"), "a_test": (1, "passed"), "b_test": (1, "passed")})
        copy = self.copy(machine)
        copy.measure(["a_test", "b_test"])
        self.assertEqual(self.verdict(copy, ["a_test", "b_test"]), ("SURVIVED", ""))
        machine.takes["b_test"] = (1, "failed")
        self.assertEqual(self.verdict(copy, ["a_test", "b_test"]), ("killed", "b_test"))
        machine.takes["ninja"] = (5, "failed")
        self.assertEqual(self.verdict(copy, ["a_test", "b_test"]), ("not compiled", ""))

    def test_a_change_that_loops_is_killed_after_five_times_the_tests_own_time_and_ten_seconds_at_least(self):
        machine = FakeMachine({"ninja": (5, "passed"), "a_test": (7, "passed"), "b_test": (0.5, "passed")})
        copy = self.copy(machine)
        copy.measure(["a_test", "b_test"])
        for test, limit in (("a_test", 35), ("b_test", 10)):
            machine.takes[test] = (1e9, "passed")
            began = machine.time
            self.assertEqual(self.verdict(copy, [test]), ("killed", f"{test}, which took more than {limit} s"))
            self.assertEqual(machine.time - began, 5 + limit)

    def test_everything_has_ended_by_the_end_and_what_was_stopped_is_named(self):
        machine = FakeMachine({"ninja": (20, "passed"), "a_test": (2, "failed")})
        copy = self.copy(machine, seconds=100)
        copy._green["a_test"] = 1
        counts, printed, noted = self.look(copy, 9)
        self.assertEqual(machine.time, 1100)  # 22 s for each, and 12 of the fifth's compilation
        self.assertEqual(counts, {"killed": 4, "SURVIVED": 0, "not compiled": 0})
        self.assertEqual(len(printed.splitlines()), 5, printed)
        self.assertEqual(noted, "mutations: 4 of 9 were tried in the time there is: a_program was being compiled for change 4\n")

    def test_a_test_that_the_end_stops_is_no_verdict(self):
        machine = FakeMachine({"ninja": (1, "passed"), "a_test": (1e9, "passed")})
        copy = self.copy(machine, seconds=100)
        copy._green["a_test"] = 10
        counts, _, noted = self.look(copy, 9)
        self.assertEqual(machine.time, 1100)  # 51 s for the first, which loops, and 49 of the second's
        self.assertEqual(counts["killed"], 1)
        self.assertEqual(noted, "mutations: 1 of 9 were tried in the time there is: a_test was running for change 1\n")

    def test_survivors_are_told(self):
        copy = self.copy(FakeMachine({"ninja": (1, "passed"), "a_test": (1, "passed")}))
        copy._green["a_test"] = 1
        counts, _, noted = self.look(copy, 1)
        self.assertEqual(counts, {"killed": 0, "SURVIVED": 1, "not compiled": 0})
        self.assertEqual(noted, "mutations: no test fails with this change: change 0\n")

    def test_a_test_that_fails_or_is_not_built_without_a_change_ends_the_script(self):
        for takes, why in (({"ninja": (1, "failed")}, "a_program is not built: ninja -C"),
                           ({"ninja": (1, "passed"), "a_test": (1, "failed")}, "a_test fails without any mutation"),
                           ({"ninja": (1, "passed"), "a_test": (1e9, "passed")}, "a_test hangs without any mutation")):
            with self.assertRaisesRegex(SystemExit, why):
                self.copy(FakeMachine(takes)).measure(["a_test"])

    def test_an_end_before_the_first_change_is_a_note_and_no_failure_in_a_turn(self):
        machine = FakeMachine({"cmake": (5, "passed"), "ninja": (1e9, "passed")})
        copy = self.copy(machine, seconds=100)
        arguments = types.SimpleNamespace(build=self.root, work=self.root, floor=FLOOR, turn=True)
        with tempfile.NamedTemporaryFile() as notes, unittest.mock.patch("sys.stdout", io.StringIO()), \
                unittest.mock.patch.dict(os.environ, TANDEM_CI_NOTES=notes.name), \
                unittest.mock.patch.object(mutations, "Copy", return_value=copy):
            wrong = mutations.try_all({"made": [("change", "a.cc", "changed", ["a_test"])]}, arguments, copy.end)
            noted = pathlib.Path(notes.name).read_text().splitlines()
        self.assertEqual((wrong, machine.time), ([], 1100))
        self.assertEqual(noted, ["mutations: none of 1 was tried in the time there is: a_program was being compiled without "
                                 "any change", "mutations: 0 of the room made were tried, and fewer than 8 decide nothing"])

    def test_a_command_that_is_stopped_ends_with_what_it_started(self):
        reader, writer = os.pipe()
        with open(reader, encoding="ascii") as started:
            os.set_inheritable(writer, True)
            command = ["sh", "-c", f"exec 3>/dev/fd/{writer}; sleep 600 & sleep 600"]
            with unittest.mock.patch("subprocess.Popen", wraps=lambda *words, **more: POPEN(*words, pass_fds=[writer], **more)):
                self.assertEqual(mutation_builds.outcome_of(command, self.root, 0.05), "over")
            os.close(writer)
            self.assertEqual(started.read(), "")  # returns when nobody holds the other end any more
        self.assertEqual(mutation_builds.outcome_of(["true"], self.root, float("inf")), "passed")
        self.assertEqual(mutation_builds.outcome_of(["false"], self.root, 600), "failed")


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
