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
    """What `work` returns in that turn, without its output."""
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
        self.commit({"deploy/scripts/checked_since.txt": f"# head\nthing {commit}\nother 1234\n"})

    def plan(self, names, turns, capacity, turn):
        return at_turn(turn, lambda: ci_turns.plan("thing", names, turns, capacity, self.root))


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

    def draws(self, commits):
        """The turns of 10 that runs of these commits draw."""
        with unittest.mock.patch.dict(os.environ, TANDEM_CI_TURN=""):
            found = []
            for commit in commits:
                with unittest.mock.patch("ci_turns.git", lambda *_, commit=commit: [commit]):
                    found.append(ci_turns.draw(10, self.root).turn)
        return found

    def test_every_turn_comes_and_a_commit_has_the_same_each_time(self):
        found = self.draws(f"{i:040x}" for i in range(300))
        for turn in range(10):
            self.assertGreater(found.count(turn), len(found) / 30)
        self.assertEqual(len(set(self.draws(["abc"] * 5))), 1)

    def test_a_run_says_its_turn_and_when_the_others_come(self):
        self.commit({"a": ""})
        with unittest.mock.patch.dict(os.environ, TANDEM_CI_TURN=""):
            text = ci_turns.draw(10, self.root).text()
        self.assertRegex(text, r"turn \d of 10, drawn by commit")
        self.assertIn("a chance of 1 in 10 with each commit and comes within 44 of them with 99 in 100", text)
        self.assertEqual(at_turn(13, lambda: ci_turns.draw(10, self.root)).text(),
                         "turn 3 of 10, as TANDEM_CI_TURN has it")
        with self.assertRaises(SystemExit):
            at_turn("x", lambda: ci_turns.draw(10, self.root))

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

    def test_generated_headers_stand_for_their_proto_files(self):
        self.commit({"c/a.cc": '#include "tandem/v1/a.grpc.pb.h"\n', "c/b.cc": '#include "tandem/v1/b.pb.h"\n',
                     "c/c.cc": "", "proto/tandem/v1/a.proto": 'import "tandem/v1/b.proto";\n',
                     "proto/tandem/v1/b.proto": 'import public "tandem/v1/c.proto";\n',
                     "proto/tandem/v1/c.proto": 'import "google/protobuf/descriptor.proto";\n'})
        self.record()
        names = ["c/a.cc", "c/b.cc", "c/c.cc"]
        turn = next(t for t in range(1000) if all(ci_turns.turn_of(name, 1000) != t for name in names))
        self.commit({"proto/tandem/v1/a.proto": "x"})
        self.assertEqual(self.plan(names, 1000, 9, turn).due, ["c/a.cc"])
        self.git("checkout", "-q", "HEAD~1")
        self.commit({"proto/tandem/v1/c.proto": "x"})
        self.assertEqual(set(self.plan(names, 1000, 9, turn).due), {"c/a.cc", "c/b.cc"})

    def test_a_cmake_file_makes_what_it_compiles_due(self):
        names = ["c/a.cc", "c/d/b.cc", "e/x.cc", "e/uses_proto.cc"]
        turn = next(t for t in range(1000) if all(ci_turns.turn_of(name, 1000) != t for name in names))
        self.commit({**{name: "" for name in names}, "proto/tandem/v1/a.proto": "",
                     "e/uses_proto.cc": '#include "tandem/v1/a.pb.h"\n'})
        self.record()
        recorded = self.git("rev-parse", "HEAD")
        for changed, due in (("c/CMakeLists.txt", names[:2]), ("c/d/CMakeLists.txt", ["c/d/b.cc"]),
                             ("proto/CMakeLists.txt", ["e/uses_proto.cc"]), ("CMakeLists.txt", names),
                             ("deploy/cmake/Any.cmake", names), ("deploy/CMakeLists.txt", [])):
            self.git("checkout", "-q", recorded)
            self.commit({changed: "x"})
            self.assertEqual(set(self.plan(names, 1000, 9, turn).due), set(due), changed)
        self.git("checkout", "-q", recorded)
        self.commit({"CMakeLists.txt": "x", "e/x.cc": "x"})
        plan = self.plan(names, 1000, 2, turn)
        self.assertEqual((plan.due[0], len(plan.due), len(plan.late)), ("e/x.cc", 2, 2))

    def test_of_many_that_are_due_other_ones_find_room_in_another_turn(self):
        self.commit({"a": ""})
        self.record()
        self.commit({"CMakeLists.txt": "x"})
        found = {name for turn in range(0, 10, 2) for name in self.plan(self.NAMES, 10, 45, turn).due}
        self.assertGreater(len(found), 150)

    def test_a_kernels_twin_for_the_emulator_changes_with_the_kernel(self):
        self.write({"c/k.cu": '#include "c/k.h"\n', "c/k.h": ""})
        self.assertEqual(ci_turns.Includes(self.root).closure("c/k.cu.emulated.cc"),
                         {"c/k.cu.emulated.cc", "c/k.cu", "c/k.h"})

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
            plan.say()
            told = pathlib.Path(notes.name).read_text()
        self.assertIn(f"thing: turn 4 of 10, as TANDEM_CI_TURN has it: {len(share)} files; "
                      f"{200 - len(share)} not looked at", told)
        self.assertIn("more than the seconds of this section hold", told)

    def test_without_the_recorded_commit_turns_go_on(self):
        self.commit({"deploy/scripts/checked_since.txt": "thing 1234567890123456789012345678901234567890\n"})
        found = [name for turn in range(10) for name in self.plan(self.NAMES, 10, 40, turn).due]
        self.assertEqual(sorted(found), sorted(self.NAMES))


class RecordTest(unittest.TestCase):
    def test_each_check_has_a_whole_hash(self):
        recorded = ci_turns.recorded_commits()
        self.assertEqual(set(recorded), {"clang-tidy", "includes", "sanitizers"})
        for commit in recorded.values():
            self.assertRegex(commit, r"^[0-9a-f]{40}$")


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
        self.write({"build/unity/tandem_base/0.cc": ""})
        self.compile_commands("build/unity/tandem_base/0.cc")
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

    def test_a_program_that_a_script_runs_is_the_tests_program(self):
        self.write({"sub/CMakeLists.txt": "add_test(NAME wrapped COMMAND python3 ${CMAKE_SOURCE_DIR}/expect_output.py "
                                          "--code 0 \"speed [0-9]+ .GB|s.\" ${CMAKE_BINARY_DIR}/tests/x copy 8)\n"})
        build = configure(self.root, {}, "add_subdirectory(sub)")
        test, = ctest_programs.tests_of(build)
        self.assertEqual(test["command"][-3:], [f"{build}/tests/x", "copy", "8"])
        self.assertEqual(ctest_programs.program_of(test, build, {"tests/x", "tests/y"}), "tests/x")


if __name__ == "__main__":
    unittest.main()
