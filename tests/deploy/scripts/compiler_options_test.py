"""What deploy/cmake/TandemCompiler.cmake and TandemTargets.cmake make of a small program: defences and checks."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy/package"))

import elf  # noqa: E402  pylint: disable=wrong-import-position

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(made LANGUAGES C CXX)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
list(APPEND CMAKE_MODULE_PATH ${CMAKE_SOURCE_DIR}/deploy/cmake)
include(TandemCompiler)
include(TandemUnity)
include(TandemTargets)
tandem_executable(NAME made SRCS a.cc)
"""
# A buffer whose size the compiler knows, and an index that it does not.
SOURCE = """#include <cstring>
#include <vector>
int main(int count, char** words) {
  char buffer[64];
  std::strcpy(buffer, words[0]);
  std::vector<int> numbers(1, 7);
  return numbers[static_cast<size_t>(count - 1)] + buffer[0];
}
"""


class OptionsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(ROOT / "deploy/cmake", self.root / "deploy/cmake")
        (self.root / "CMakeLists.txt").write_text(PROJECT)
        (self.root / "a.cc").write_text(SOURCE)

    def built(self, *options):
        """The program, built with these options of CMake."""
        build = self.root / "build"
        for command in (["cmake", "-S", self.root, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                         *options], ["ninja", "-C", build]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return build / "bin/made"

    @staticmethod
    def imports(program):
        """Names of the functions that it takes from the C library."""
        return subprocess.run(["readelf", "--dyn-syms", "-W", program], capture_output=True, text=True, check=True).stdout

    def test_a_release_guards_stacks_and_checks_library_calls(self):
        names = self.imports(self.built("-DTANDEM_HARDENED=ON"))
        self.assertIn("__stack_chk_fail", names)
        self.assertIn("__strcpy_chk", names)
        names = self.imports(self.built("-DTANDEM_HARDENED=OFF"))
        self.assertNotIn("__stack_chk_fail", names)
        self.assertNotIn("__strcpy_chk", names)

    def test_every_program_is_linked_with_the_defences_that_cost_nothing(self):
        self.assertEqual(elf.missing_defences(self.built()), [])

    def test_sanitizer_builds_check_what_the_standard_library_is_asked_for_and_others_do_not(self):
        program = self.built("-DTANDEM_SANITIZE=undefined")
        done = subprocess.run([program, "one more"], capture_output=True, text=True, check=False)
        self.assertIn("Assertion '__n < this->size()' failed", done.stdout + done.stderr)
        commands = (self.root / "build/build.ninja").read_text()
        self.assertIn("-D_GLIBCXX_ASSERTIONS", commands)
        self.built("-DTANDEM_SANITIZE=")
        self.assertNotIn("_GLIBCXX_ASSERTIONS", (self.root / "build/build.ninja").read_text())


if __name__ == "__main__":
    unittest.main()
