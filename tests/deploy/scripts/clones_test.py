"""What one clone has compiled serves another: with ccache, and in every command and generated source."""
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SOURCES = {".c", ".cc", ".cpp", ".cu", ".cxx", ".h", ".hxx", ".inc"}
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(made LANGUAGES C CXX)
list(APPEND CMAKE_MODULE_PATH ${CMAKE_SOURCE_DIR}/deploy/cmake)
include(TandemCompiler)
include(TandemUnity)
find_package(fmt CONFIG REQUIRED)
find_package(Catch2 REQUIRED)
include(TandemPrecompiledHeaders)
include(TandemTargets)
include(TandemCuda)
tandem_precompiled(NAME made_headers HEADERS <vector>)
add_library(made STATIC a.cc b.cc)
if(TANDEM_HAS_CUDA)
  target_sources(made PRIVATE k.cu)
endif()
target_include_directories(made PRIVATE ${CMAKE_SOURCE_DIR})
tandem_use_precompiled(made made_headers)
tandem_unity(made)
"""
FILES = {
    "CMakeLists.txt": PROJECT,
    "a.h": "#pragma once\nstd::vector<int> Ones(int n);\n",
    "a.cc": '#include <vector>\n#include "a.h"\nstd::vector<int> Ones(int n) { return std::vector<int>(n, 1); }\n',
    "b.cc": '#include <vector>\n#include "a.h"\nconst char* Here() { return __FILE__; }\nint Two() { return Ones(2)[0]; }\n',
    "k.cu": '__global__ void Add(int* x) { *x += 1; }\n',
}


def is_taken_out(before, word):
    """Whether ccache makes the path of this word relative, or leaves the word out of its key."""
    if before in ("-isystem", "-include", "-o", "-c", "-MF", "-MT"):
        return True
    return word.startswith(("-ffile-prefix-map=", "-I"))


def run(command, **variables):
    # Of a build without a compiler cache: these tests have one of their own.
    environment = {name: value for name, value in os.environ.items() if name != "CCACHE_DISABLE"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment | variables)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


@unittest.skipUnless(shutil.which("ccache"), "there is no ccache")
class CacheTest(unittest.TestCase):
    """A project of three sources, made with deploy/cmake in two folders that share a cache."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.base = pathlib.Path(folder.name)
        self.clones = [self.base / "one", self.base / "elsewhere" / "another"]
        for clone in self.clones:
            shutil.copytree(ROOT / "deploy/cmake", clone / "deploy/cmake")
            (clone / "deploy/scripts").mkdir()
            for script in (ROOT / "deploy/scripts").glob("*.sh"):  # one may start the compiler
                shutil.copy(script, clone / "deploy/scripts")
            for name, text in FILES.items():
                (clone / name).write_text(text)

    def build(self, clone, options, **locale):
        """{ccache's counter: value} of a build from nothing, and how many objects it has."""
        variables = {"CCACHE_DIR": str(self.base / "cache"), **locale}
        said = run(["cmake", "-S", str(clone), "-B", str(clone / "build"), "-G", "Ninja", *options])
        run(["ccache", "--zero-stats"], **variables)
        run(["ninja", "-C", str(clone / "build"), "made"], **variables)
        lines = run(["ccache", "--print-stats"], **variables).splitlines()
        counters = {key: int(value) for key, value in (line.split("\t") for line in lines)}
        # The precompiled header, the source that it belongs to, the unit of a.cc and b.cc; the kernel.
        return counters, 4 if "CUDA backend: on" in said else 3

    def serves_the_other(self, *options):
        # Whatever the language of the messages: deploy/build.sh sets one, ninja by hand does not.
        filled, objects = self.build(self.clones[0], options, LANG="C", LC_ALL="C.UTF-8", LC_MESSAGES="C")
        self.assertEqual(filled["cache_miss"], objects, filled)
        found, objects = self.build(self.clones[1], options, LANG="C.UTF-8", LC_ALL="")
        self.assertEqual((found["cache_miss"], found["direct_cache_hit"]), (0, objects), found)
        for clone in self.clones:
            (unit,) = (clone / "build").rglob("made.dir/unity/made/0.cc.o")
            self.assertNotIn(str(self.base).encode(), unit.read_bytes())  # debug information, __FILE__
            self.assertIn(b"b.cc", unit.read_bytes())

    def test_units_precompiled_headers_and_kernels(self):
        self.serves_the_other("-DCMAKE_CUDA_ARCHITECTURES=90")

    def test_sanitizer_builds(self):
        self.serves_the_other("-DTANDEM_SANITIZE=address,undefined")


class CommandsTest(unittest.TestCase):
    """The project's own build: as ctest names it, else the usual folder."""

    def setUp(self):
        self.build = pathlib.Path(os.environ.get("TANDEM_TEST_BUILD") or ROOT / "build").resolve()
        if not (self.build / "build.ninja").exists():
            self.skipTest(f"{self.build} is not configured")
        self.folders = (str(ROOT), str(self.build))

    def names_a_folder(self, text):
        return any(folder in text for folder in self.folders)

    def compile_commands(self):
        """(words that start the compiler, the compiler's own) of each."""
        entries = json.loads(run(["ninja", "-C", str(self.build), "-t", "compdb"]))
        commands = [shlex.split(entry["command"]) for entry in entries
                    if entry.get("output", "").endswith((".o", ".gch"))]
        places = [next((i + 1 for i, word in enumerate(words) if os.path.basename(word) == "ccache"), 0)
                  for words in commands]
        return [(words[:place], words[place:]) for words, place in zip(commands, places)]

    def test_a_clones_folder_is_on_a_command_line_only_where_ccache_takes_it_out(self):
        commands = self.compile_commands()
        self.assertGreater(len(commands), 100)
        found = {word for _, words in commands for before, word in zip(["", *words], words)
                 if self.names_a_folder(word) and not is_taken_out(before, word)}
        self.assertEqual(found, set())

    @unittest.skipUnless(shutil.which("ccache"), "there is no ccache")
    def test_every_compiler_is_started_by_ccache_with_the_clones_folder(self):
        for launcher, _ in self.compile_commands():
            self.assertIn(f"CCACHE_BASEDIR={ROOT}", launcher)
            self.assertIn("CCACHE_NOHASHDIR=1", launcher)

    def test_no_generated_source_names_a_clones_folder(self):
        sources = [pathlib.Path(folder, file) for folder, folders, files in os.walk(self.build)
                   for file in files if pathlib.Path(file).suffix in SOURCES
                   # What CMake tries the compilers with, and LibTorch's headers.
                   if not {"CompilerIdC", "CompilerIdCXX", "CompilerIdCUDA", "CMakeTmp"} & set(folder.split("/"))]
        self.assertTrue(any("/unity/" in str(source) for source in sources))
        self.assertEqual([str(source) for source in sources
                          if self.names_a_folder(source.read_text(errors="replace"))], [])


if __name__ == "__main__":
    unittest.main()
