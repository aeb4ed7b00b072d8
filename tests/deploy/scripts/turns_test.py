"""Turns: over all of them everything is looked at, and what changed comes before its turn."""
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(ROOT / "deploy/scripts"))

import check_includes  # noqa: E402  pylint: disable=wrong-import-position
import ci_turns  # noqa: E402  pylint: disable=wrong-import-position
import ctest_programs  # noqa: E402  pylint: disable=wrong-import-position
from made_project import configure  # noqa: E402  pylint: disable=wrong-import-position


def at_turn(turn, work):
    """What `work` returns on that day, without its output."""
    with unittest.mock.patch.dict(os.environ, TANDEM_CI_TURN=str(turn)), \
            unittest.mock.patch("sys.stdout", io.StringIO()):
        os.environ.pop("TANDEM_CI_NOTES", None)
        return work()


class Repository(unittest.TestCase):
    """A git repository in a folder, whose first commit is the recorded one."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.git("init", "-q")

    def git(self, *arguments):
        done = subprocess.run(["git", "-C", str(self.root), "-c", "user.name=a", "-c", "user.email=a@b",
                               *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def write(self, files):
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)

    def commit(self, files):
        self.write(files)
        self.git("add", "-A")
        self.git("commit", "-qm", "x")

    def record(self):
        commit = self.git("rev-parse", "HEAD")
        self.commit({"deploy/scripts/checked_since.txt": f"# head\n{commit}\n"})

    def plan(self, names, turns, capacity, turn):
        return at_turn(turn, lambda: ci_turns.plan(names, turns, capacity, self.root))


class PlanTest(Repository):
    NAMES = [f"common/f{i}.cc" for i in range(200)]

    def test_over_all_turns_every_file_is_looked_at(self):
        self.commit({"a": ""})
        self.record()
        plans = [self.plan(self.NAMES, 10, 40, turn) for turn in range(10)]
        self.assertEqual(sorted(name for plan in plans for name in plan.due), sorted(self.NAMES))
        for plan in plans:
            self.assertLess(len(plan.due), 40)
            self.assertEqual(plan.others, 200 - len(plan.due))
        self.assertEqual(self.plan(self.NAMES, 10, 40, 13), plans[3])

    def test_a_files_turn_does_not_depend_on_others(self):
        turn = ci_turns.turn_of("common/f3.cc", 10)
        self.commit({"a": ""})
        self.record()
        self.assertIn("common/f3.cc", self.plan(["common/f3.cc", "x.cc"], 10, 5, turn).due)
        self.assertIn("common/f3.cc", self.plan(self.NAMES, 10, 5, turn).due)

    def test_what_changed_comes_first_and_in_every_turn(self):
        self.commit({"common/f1.cc": "", "common/f2.cc": "", "common/f3.cc": ""})
        self.record()
        self.commit({"common/f1.cc": "1"})
        self.commit({"common/f2.cc": "2"})
        self.write({"common/f3.cc": "not committed"})
        for turn in range(10):
            self.assertEqual(self.plan(self.NAMES, 10, 100, turn).due[:3],
                             ["common/f3.cc", "common/f2.cc", "common/f1.cc"])

    def test_of_a_changed_header_its_source_then_all_who_include_it(self):
        self.commit({"c/a.h": "", "c/mid.h": '#include "c/a.h"\n', "c/a.cc": '#include "c/a.h"\n',
                     "c/direct.cc": '  # include "c/a.h"\n', "c/far.cc": '#include "c/mid.h"\n',
                     "c/other.cc": '#include "absent.h"\n'})
        self.record()
        self.commit({"c/a.h": "int x;"})
        names = ["c/direct.cc", "c/far.cc", "c/a.cc", "c/other.cc"]
        turn = next(t for t in range(1000) if all(ci_turns.turn_of(name, 1000) != t for name in names))
        self.assertEqual(self.plan(names, 1000, 9, turn).due, ["c/a.cc", "c/direct.cc", "c/far.cc"])
        plan = self.plan(names, 1000, 1, turn)
        self.assertEqual((plan.due, plan.late, plan.others), (["c/a.cc"], ["c/direct.cc", "c/far.cc"], 3))

    def test_a_turns_share_is_due_even_where_more_changed_than_fits(self):
        self.commit({"a": ""})
        self.record()
        self.commit({name: "x" for name in self.NAMES})
        share = {name for name in self.NAMES if ci_turns.turn_of(name, 10) == 4}
        plan = self.plan(self.NAMES, 10, 5, 4)
        self.assertEqual(set(plan.due), share)
        self.assertEqual(len(plan.late), 200 - len(share))
        with tempfile.NamedTemporaryFile() as notes, \
                unittest.mock.patch.dict(os.environ, TANDEM_CI_NOTES=notes.name), \
                unittest.mock.patch("sys.stdout", io.StringIO()):
            plan.say("thing")
            told = pathlib.Path(notes.name).read_text()
        self.assertIn(f"thing: turn 4 of 10: {len(share)} files; {200 - len(share)} not looked at", told)
        self.assertIn("more than one run can look at", told)

    def test_without_the_recorded_commit_turns_go_on(self):
        self.commit({"deploy/scripts/checked_since.txt": "1234567890123456789012345678901234567890\n"})
        found = [name for turn in range(10) for name in self.plan(self.NAMES, 10, 40, turn).due]
        self.assertEqual(sorted(found), sorted(self.NAMES))

    def test_the_day_decides(self):
        with unittest.mock.patch.dict(os.environ, TANDEM_CI_TURN=""), \
                unittest.mock.patch("time.time", return_value=86400 * 25 + 5.0):
            self.assertEqual(ci_turns.turn_of_today(10), 5)


class RecordTest(unittest.TestCase):
    def test_the_recorded_commit_is_a_whole_hash(self):
        text = (ROOT / "deploy/scripts/checked_since.txt").read_text()
        (line,) = [line for line in text.splitlines() if not line.startswith("#")]
        self.assertRegex(line, r"^[0-9a-f]{40}$")


class IncludesTest(Repository):
    def test_commands_lose_their_launcher_and_their_outputs(self):
        self.assertEqual(
            check_includes.syntax_command(
                "cmake -E env A=1 B=c /usr/bin/ccache /usr/bin/c++ -DX=1 -MD -MT a.o -MF a.d -o a.o -c a.cc".split()),
            ["/usr/bin/c++", "-DX=1", "a.cc", "-fsyntax-only"])

    def check(self, *arguments):
        scripts = self.root / "deploy/scripts"
        for name in ("check_includes.py", "ci_turns.py"):
            self.write({f"deploy/scripts/{name}": (ROOT / "deploy/scripts" / name).read_text()})
        done = subprocess.run([sys.executable, str(scripts / "check_includes.py"), "--build",
                               str(self.root / "build"), *arguments], capture_output=True, text=True,
                              check=False, env=os.environ | {"TANDEM_CI_TURN": "0", "TANDEM_CI_NOTES": ""})
        return done.returncode, done.stdout + done.stderr

    def compile_commands(self, *names):
        """The compiler is `grep -L MISSING`, which fails where the word is in the file."""
        tool = self.root / "bin/cc"
        self.write({"bin/cc": '#!/bin/sh\n[ "$2" = -fsyntax-only ] || exit 3\nexec test -z "$(grep MISSING "$1")"\n'})
        tool.chmod(0o755)
        entries = [{"directory": str(self.root), "file": name, "command": f"ccache {tool} -o x.o -c {name}"}
                   for name in names]
        self.write({"build/compile_commands.json": json.dumps(entries)})

    def test_a_file_that_does_not_compile_by_itself_fails(self):
        self.write({"a.cc": "good", "b.cc": "MISSING", "k.cu": "MISSING"})
        self.compile_commands("a.cc", "k.cu")
        code, text = self.check("--whole")
        self.assertEqual(code, 0, text)
        self.compile_commands("a.cc", "b.cc")
        code, text = self.check("--whole")
        self.assertEqual(code, 1)
        self.assertIn("b.cc does not compile by itself", text)

    def test_what_is_not_reached_fails(self):
        self.write({"a.cc": "good"})
        self.compile_commands("a.cc")
        code, text = self.check("--whole", "--seconds", "-1")
        self.assertEqual(code, 1)
        self.assertIn("not reached: a.cc", text)

    def test_a_unity_build_is_refused(self):
        self.write({"common/Unity/unity_0.cc": ""})
        self.compile_commands("common/Unity/unity_0.cc")
        code, text = self.check("--whole")
        self.assertEqual(code, 1)
        self.assertIn("is a unity build", text)


class ProgramsTest(Repository):
    def test_commands_are_known_before_anything_is_built_in_sub_folders_too(self):
        self.write({"sub/CMakeLists.txt": "add_test(NAME inner COMMAND ${CMAKE_BINARY_DIR}/tests/x \"[a;b]\" c)\n"})
        build = configure(self.root, {"outer": "echo a"}, "add_subdirectory(sub)")
        tests = {test["name"]: test for test in ctest_programs.tests_of(build)}
        self.assertEqual(tests["inner"]["command"], [f"{build}/tests/x", "[a;b]", "c"])
        self.assertEqual(ctest_programs.program_of(tests["inner"], build, {"tests/x"}), "tests/x")
        self.assertEqual(ctest_programs.program_of(tests["inner"], build, {"tests/y"}), "")
        self.assertEqual(ctest_programs.program_of(tests["outer"], build, {"tests/x"}), "")


if __name__ == "__main__":
    unittest.main()
