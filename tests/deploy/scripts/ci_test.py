"""run_tidy.py checks what is due or fails; the sections of .ci/run."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy/scripts"))

import run_tidy  # noqa: E402  pylint: disable=wrong-import-position

FAKE = """#!/bin/sh
for file; do :; done
case "$file" in
  *slow.cc) exec sleep 60 ;;
  *bad.cc) echo "bad.cc:1: found [bugprone-x]"; exit 1 ;;
  *odd.cc) echo "odd.cc:1: [clang-diagnostic-error]"; exit 1 ;;
esac
"""


class TidyTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        (self.root / "deploy" / "scripts").mkdir(parents=True)
        for name in ("run_tidy.py", "ci_turns.py"):
            shutil.copy(ROOT / "deploy/scripts" / name, self.root / "deploy/scripts")
        (self.root / ".clang-tidy").write_text("Checks: none\n")
        (self.root / "bin").mkdir()
        tool = self.root / "bin" / "clang-tidy"
        tool.write_text(FAKE)
        tool.chmod(0o755)

    def run_on(self, names, *arguments):
        """(exit code, output, notes) over empty files of these names."""
        build, common = self.root / "build", self.root / "common"
        build.mkdir(exist_ok=True)
        common.mkdir(exist_ok=True)
        for name in names:
            (common / name).write_text(f"// {name}\n")
        (build / "compile_commands.json").write_text(json.dumps(
            [{"directory": str(build), "file": str(common / name)} for name in names]))
        notes = self.root / "notes"
        notes.write_text("")
        env = dict(os.environ, PATH=f"{self.root / 'bin'}:{os.environ['PATH']}",
                   TANDEM_CI_NOTES=str(notes), TANDEM_CI_TURN="3")
        done = subprocess.run(
            [sys.executable, str(self.root / "deploy/scripts/run_tidy.py"), "--build", str(build),
             "--jobs", "1", *arguments], env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr, notes.read_text()

    def test_a_clean_file_is_remembered_until_it_changes(self):
        self.assertIn("1 clean, 0 clean and unchanged", self.run_on(["a.cc"], "--whole")[1])
        self.assertIn("0 clean, 1 clean and unchanged", self.run_on(["a.cc"], "--whole")[1])
        (self.root / ".clang-tidy").write_text("Checks: more\n")
        self.assertIn("1 clean, 0 clean and unchanged", self.run_on(["a.cc"], "--whole")[1])

    def test_a_finding_fails(self):
        code, text, _ = self.run_on(["bad.cc", "good.cc"], "--whole")
        self.assertEqual(code, 1)
        self.assertIn("found [bugprone-x]", text)

    def listed(self, text):
        (self.root / "deploy/scripts/tidy_unparsed.txt").write_text(f"# head\n{text}")

    def test_what_clang_cannot_parse_fails(self):
        for listed in ("", "common/other.cc | a reason\n"):
            self.listed(listed)
            code, text, notes = self.run_on(["odd.cc", "other.cc"] if listed else ["odd.cc"], "--whole")
            self.assertEqual(code, 1)
            self.assertIn("name it in tidy_unparsed.txt: common/odd.cc", text)
            self.assertIn("[clang-diagnostic-error]", text)
            self.assertIn("1 that clang cannot parse (0 of them in tidy_unparsed.txt)", notes)

    def test_what_clang_cannot_parse_and_is_known_is_told(self):
        self.listed("common/odd.cc | clang 14 lacks it\n")
        code, text, notes = self.run_on(["odd.cc", "good.cc"], "--whole")
        self.assertEqual(code, 0, text)
        self.assertIn("not checked, as only g++ can parse it: common/odd.cc", text)
        self.assertIn("1 that clang cannot parse (1 of them in tidy_unparsed.txt)", notes)

    def test_what_clang_can_parse_must_not_be_listed(self):
        self.run_on(["good.cc"], "--whole")  # remembered as clean
        for name in ("good.cc", "bad.cc"):
            self.listed(f"common/{name} | a reason\n")
            code, text, notes = self.run_on([name], "--whole")
            self.assertEqual(code, 1)
            self.assertIn(f"take its row away: common/{name}", text)
            self.assertIn("1 in it by mistake", notes)

    def test_a_row_needs_a_file_and_a_reason(self):
        for row in ("common/good.cc |\n", "common/gone.cc | a reason\n"):
            self.listed(row)
            code, text, _ = self.run_on(["good.cc"], "--whole")
            self.assertEqual(code, 1)
            self.assertIn("tidy_unparsed.txt: not a row", text)

    def test_the_real_list_is_whole(self):
        self.assertIsInstance(run_tidy.read_unparsed(), dict)

    def test_a_slow_file_is_stopped_and_fails(self):
        code, text, notes = self.run_on(["slow.cc"], "--whole", "--file-seconds", "0.5")
        self.assertEqual(code, 1)
        self.assertIn("took too long, not checked: common/slow.cc", text)
        self.assertIn("1 that took too long", notes)

    def test_what_is_due_and_not_reached_fails(self):
        code, text, notes = self.run_on(["slow.cc", "z.cc"], "--whole", "--seconds", "0.5")
        self.assertEqual(code, 1)
        self.assertIn("not reached: common/slow.cc", text)
        self.assertIn("not reached: common/z.cc", text)
        self.assertIn("2 not reached", notes)
        self.assertIn("lacked time for what is due", text)

    def test_the_files_of_other_turns_are_told_and_not_looked_at(self):
        names = [f"f{i}.cc" for i in range(50)]
        code, text, notes = self.run_on(names)
        self.assertEqual(code, 0, text)
        due = int(notes.split("turn 3 of 10, as TANDEM_CI_TURN has it: ")[1].split()[0])
        self.assertTrue(0 < due < 20, notes)
        self.assertIn(f"{50 - due} not looked at: another turn by design", notes)


UNLOCKED = """#include "common/base/mutex.h"
class Rows {
 public:
  int rows() { TAKE return rows_; }
  void Both() { const tandem::MutexLock first(FIRST_mutex_), second(SECOND_mutex_); }

 private:
  tandem::Mutex file_mutex_ ABSL_ACQUIRED_BEFORE(rows_mutex_);
  tandem::Mutex rows_mutex_;
  int rows_ ABSL_GUARDED_BY(rows_mutex_) = 0;
};
"""


@unittest.skipUnless(shutil.which("clang-tidy") and shutil.which("clang++"),
                     "there is no clang here: deploy/setup.sh --dev installs it")
class LocksTest(unittest.TestCase):
    """What clang itself finds, with the options of the tree, in faults that are planted for it."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        for name in ("deploy/scripts/run_tidy.py", "deploy/scripts/ci_turns.py", ".clang-tidy", "common/base/mutex.h"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)

    def lint(self, files, sources):
        """(exit code, output) of lint on these files, of which the sources are compiled."""
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        (self.root / "build").mkdir(exist_ok=True)
        (self.root / "build/compile_commands.json").write_text(json.dumps(
            [{"directory": str(self.root / "build"), "file": str(self.root / name),
              "command": f"c++ -std=c++20 -I{self.root} -c {self.root / name}"} for name in sources]))
        done = subprocess.run([sys.executable, str(self.root / "deploy/scripts/run_tidy.py"), "--build",
                               str(self.root / "build"), "--whole"],
                              env=dict(os.environ, TANDEM_CI_NOTES=""), capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    @staticmethod
    def rows(take="const tandem::MutexLock lock(rows_mutex_);", first="file", second="rows"):
        return UNLOCKED.replace("TAKE", take).replace("FIRST", first).replace("SECOND", second)

    def test_what_keeps_its_locks_is_clean(self):
        code, text = self.lint({"controller/a.cc": self.rows(), "tests/b_test.cc": self.rows()},
                               ["controller/a.cc", "tests/b_test.cc"])
        self.assertEqual(code, 0, text)
        self.assertIn("2 clean", text)

    def test_an_access_without_the_lock_is_refused_in_the_programs_and_in_tests(self):
        for name in ("controller/a.cc", "tests/b_test.cc"):
            code, text = self.lint({name: self.rows(take="")}, [name])
            self.assertEqual(code, 1, text)
            self.assertIn("reading variable 'rows_' requires holding mutex 'rows_mutex_'", text)

    def test_an_access_in_a_header_of_tests_is_refused_by_a_source_that_includes_it(self):
        sources = ["tests/c_test.cc", "tests/d_test.cc"]
        files = {"tests/fakes/rows.h": "#pragma once\n" + self.rows(take=""),
                 **{name: '#include "tests/fakes/rows.h"\n' for name in sources}}
        code, text = self.lint(files, sources)
        self.assertEqual(code, 1, text)
        self.assertIn("rows.h:5:", text)
        self.assertIn("clang-tidy: 1 files, 0 clean", text)

    def test_locks_that_are_taken_in_the_wrong_order_are_refused(self):
        code, text = self.lint({"controller/a.cc": self.rows(first="rows", second="file")}, ["controller/a.cc"])
        self.assertEqual(code, 1, text)
        self.assertIn("mutex 'file_mutex_' must be acquired before 'rows_mutex_'", text)


def words_of(pid):
    """The command line of a process, empty where it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class SectionsTest(unittest.TestCase):
    def sections(self, commands):
        """(exit code, output) of .ci/run with these sections instead of its own."""
        text = (ROOT / ".ci/run").read_text()
        head = text[:text.index("\nsection set-up")].replace(
            'source "$(dirname "${BASH_SOURCE[0]}")/..', f'source "{ROOT}')
        done = subprocess.run(["bash", "-c", head + "\n" + commands], capture_output=True,
                              text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_a_section_that_hangs_is_stopped_and_named(self):
        code, text = self.sections("section quick 60 true\nsection hangs 1 sleep 60")
        self.assertEqual(code, 1)
        self.assertIn("[hangs] did not end within its 1 s", text)
        self.assertRegex(text, r"quick +passed")

    def test_a_section_that_skips_itself_fails(self):
        code, text = self.sections(
            "section half 60 bash -c 'echo half: no network >>$TANDEM_CI_NOTES; exit 77'")
        self.assertEqual(code, 1)
        self.assertIn("[half] skipped itself, and no section may", text)
        self.assertRegex(text, r"half +failed")
        self.assertIn("half: no network", text)

    def test_the_table_has_every_section_the_failed_one_and_the_sum(self):
        code, text = self.sections("section one 60 true\nsection two 60 false\nsection three 60 true")
        self.assertEqual(code, 1)
        self.assertRegex(text, r"one +passed +\d+ s\n +two +failed +\d+ s\n +together +\d+ s")
        self.assertNotIn("three", text)

    def test_what_sections_may_take_fits_into_the_whole(self):
        _, text = self.sections('echo "$((SET_UP_SECONDS + KEPT)) $MEANT $LIMIT"')
        line = next(line for line in text.splitlines() if line[:1].isdigit())
        reserved, meant, limit = map(int, line.split())
        self.assertLess(reserved, meant)
        self.assertLessEqual(limit, 5400)

    def test_sanitizers_have_what_is_left_of_the_time_that_all_is_meant_to_take(self):
        for spent, expected in ((100, "SANITIZER_SECONDS"), (3400, "(MEANT - 3400)"), (4100, "SANITIZER_LEAST")):
            _, text = self.sections(f"SECONDS={spent}\nmore=$((SECONDS - {spent})) given=$(sanitizer_seconds)\n"
                                    f'echo "given $((given - {expected})) $more"; SECONDS=0')
            given, more = map(int, re.search(r"given (-?\d+) (\d+)", text).groups())
            self.assertLessEqual(-given, more + 1, text)  # a second may have passed
            self.assertLessEqual(given, 0, text)

    LEAVER = "section leaver 60 bash -c 'setsid sleep {} >/dev/null 2>&1 &{}'\nsection next 60 true"

    def test_a_section_that_leaves_a_process_behind_fails_and_the_process_is_killed_and_named(self):
        code, text = self.sections("GRACE_SECONDS=1\n" + self.LEAVER.format(987, ""))
        self.assertEqual(code, 1)
        self.assertRegex(text, r"leaver left process [0-9]+: sleep 987")
        self.assertIn("[leaver] left processes behind that did not end within 1 s", text)
        self.assertRegex(text, r"leaver +failed")
        self.assertNotIn("[next]", text)
        pid = text.split("leaver left process ")[1].split(":")[0]
        while words_of(pid) == b"sleep\0987\0":
            time.sleep(0.01)

    def test_what_a_section_leaves_behind_may_end_by_itself(self):
        code, text = self.sections(self.LEAVER.format(1, ""))
        self.assertEqual(code, 0, text)
        self.assertNotIn("left process", text)
        self.assertRegex(text, r"leaver +passed")

    def test_a_section_that_fails_and_leaves_a_process_behind_fails_with_its_exit_code(self):
        code, text = self.sections("GRACE_SECONDS=1\n" + self.LEAVER.format(987, " exit 3"))
        self.assertEqual(code, 1)
        self.assertIn("with exit code 3", text)
        self.assertRegex(text, r"leaver left process [0-9]+: sleep 987")


if __name__ == "__main__":
    unittest.main()
