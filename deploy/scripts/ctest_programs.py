"""The tests of a build folder with their labels and commands, before anything is built."""
import json
import pathlib
import subprocess
import tempfile

# ctest's JSON leaves out the command of a program that is not built yet. CMake reads the same files.
READER = r"""
string(ASCII 31 _unit)
string(ASCII 30 _record)
function(add_test)
  set(_line "")
  math(EXPR _last "${ARGC} - 1")
  foreach(_i RANGE ${_last})
    string(APPEND _line "${ARGV${_i}}${_unit}")
  endforeach()
  file(APPEND "${OUT}" "${_line}${_record}")
endfunction()
function(set_tests_properties)
endfunction()
function(set_directory_properties)
endfunction()
function(subdirs)
  foreach(_dir ${ARGN})
    if(NOT IS_ABSOLUTE "${_dir}")
      set(_dir "${CMAKE_CURRENT_LIST_DIR}/${_dir}")
    endif()
    if(EXISTS "${_dir}/CTestTestfile.cmake")
      include("${_dir}/CTestTestfile.cmake")
    endif()
  endforeach()
endfunction()
include("${BUILD}/CTestTestfile.cmake")
"""


def commands_of(build):
    """{test: [words]}."""
    with tempfile.TemporaryDirectory() as folder:
        script, out = pathlib.Path(folder) / "read.cmake", pathlib.Path(folder) / "out"
        script.write_text(READER)
        out.touch()
        subprocess.run(["cmake", f"-DBUILD={build}", f"-DOUT={out}", "-P", str(script)], check=True,
                       capture_output=True)
        records = [record.split("\x1f")[:-1] for record in out.read_text().split("\x1e")[:-1]]
    return {words[0]: words[1:] for words in records}


def tests_of(build):
    """[{name, command, labels}] in ctest's order."""
    done = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"],
                          capture_output=True, text=True, check=True)
    commands, tests = commands_of(build), []
    for test in json.loads(done.stdout)["tests"]:
        properties = {one["name"]: one["value"] for one in test.get("properties", [])}
        tests.append({"name": test["name"], "labels": properties.get("LABELS", []),
                      "command": test.get("command") or commands.get(test["name"], [])})
    return tests


def executables_of(build):
    """Paths of the programs that the build makes, relative to its folder, as ninja knows them."""
    done = subprocess.run(["ninja", "-C", str(build), "-t", "targets", "all"], capture_output=True,
                          text=True, check=True)
    return {line.split(": ")[0] for line in done.stdout.splitlines()
            if "_EXECUTABLE_LINKER" in line.split(": ")[-1]}


def program_of(test, build, executables):
    """The program of the build that a test runs, "" for a script."""
    build = pathlib.Path(build)
    for word in test["command"]:
        path = pathlib.PurePath(word)
        if path.is_relative_to(build) and str(path.relative_to(build)) in executables:
            return str(path.relative_to(build))
    return ""
