"""The builds in which mutations.py tries changes: a copy of the tree, and the tree's own for barriers of kernels.

Every command has a limit and ends with all that it started. A mutant that loops for ever is as good as killed: a test may
take five times as long as without the mutation, and is stopped then. Where the end of everything (End) comes first, a
mutation has no verdict: OutOfTime.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEMORY_BYTES = 16 << 30  # a mutant may fill the memory
GREEN_SECONDS = 1800  # of a test without a mutation; only what hangs takes so long
TIMES_GREEN, LEAST_SECONDS = 5, 10  # what a mutant's test may take: as many times its own time, and never less


class OutOfTime(Exception):
    """The end came before a verdict; the text says what was stopped."""


class End:
    """When everything is to have ended."""

    def __init__(self, seconds=float("inf"), now=time.monotonic):
        self._now, self._at = now, now() + seconds

    def left(self):
        return max(0.0, self._at - self._now())

    def now(self):
        return self._now()


def end_session(session):
    """ctest gives each test a process group of its own; all are in the session."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) == session:
                os.kill(int(stat.parent.name), signal.SIGKILL)
        except (OSError, IndexError):
            continue  # it has ended meanwhile


def outcome_of(command, folder, seconds, environment=None):
    """`passed`, `failed`, or `over` where it was stopped after so many seconds. What it has started ends with it, and with
    this script."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          env={**os.environ, **(environment or {})}, start_new_session=True) as process:
        try:
            return "passed" if process.wait(None if seconds == float("inf") else seconds) == 0 else "failed"
        except subprocess.TimeoutExpired:
            end_session(process.pid)
            return "over"
        except BaseException:
            end_session(process.pid)
            raise


class Build:
    """A build folder of the tree at `root`, whose tests are built and run. `run` and the clock of `end` can be replaced."""

    def __init__(self, root, build, end, run=outcome_of):
        self.root, self.build, self.end, self._run = root, build, end, run
        self.programs = self._programs()
        self._green = {}

    def _programs(self):
        """By the name of a test, the program that has it; ctest itself names no program that is not built yet."""
        programs = {}
        for file in self.build.rglob("CTestTestfile.cmake"):
            programs.update(re.findall(r'^add_test\(\[=\[(\w+)\]=\] "[^"]*/(\w+)"', file.read_text(), re.M))
        return programs

    def builds(self, program):
        outcome = self._run(["nice", "-n", "5", "ninja", "-C", str(self.build), program], self.root, self.end.left())
        if outcome == "over":
            raise OutOfTime(f"{program} was being compiled")
        return outcome == "passed"

    def _test(self, test, seconds, environment=None):
        """An outcome; `over` only where the test had all of its seconds."""
        command = ["prlimit", f"--as={MEMORY_BYTES}", "--core=0", "nice", "-n", "5", "ctest", "--test-dir", str(self.build),
                   "--no-tests=error", "-R", f"^{test}$"]
        left = self.end.left()
        outcome = self._run(command, self.root, min(seconds, left), environment)
        if outcome == "over" and left < seconds:
            raise OutOfTime(f"{test} was running")
        return outcome

    def measure(self, tests):
        """Builds the tests' programs and measures how long each takes. What fails without a mutation tells nothing about
        one: that ends this script."""
        for test in tests:
            if not self.builds(self.programs[test]):
                sys.exit(f"{self.programs[test]} is not built: ninja -C {self.build} {self.programs[test]}")
            began = self.end.now()
            outcome = self._test(test, GREEN_SECONDS)
            if outcome != "passed":
                sys.exit(f"{test} {'hangs' if outcome == 'over' else 'fails'} without any mutation: "
                         f"ctest --test-dir {self.build} -R '^{test}$' -V")
            self._green[test] = self.end.now() - began

    def limit(self, test):
        """Seconds that it may take with a mutation."""
        return max(LEAST_SECONDS, TIMES_GREEN * self._green[test])

    def notices(self, test, **environment):
        """How the test notices a mutation, "" if it passes."""
        outcome = self._test(test, self.limit(test), environment)
        return {"passed": "", "failed": test, "over": f"{test}, which took more than {self.limit(test):.0f} s"}[outcome]


class LeftOut(Build):
    """The tree's own build, whose emulator leaves out a barrier of a kernel. It says so itself where the rest of a block
    waits for ever."""

    def verdict(self, file, line, tests):
        """What becomes of the tests where the barrier in that line is missing."""
        for test in tests:
            if how := self.notices(test, TANDEM_EMULATED_SKIP=f"{file}:{line}"):
                return "killed", how
        return "SURVIVED", ""


class Copy(Build):
    """The tree as it is now, elsewhere, with a build folder in which the files that are to be changed are compiled alone."""

    def __init__(self, work, build, alone, end, run=outcome_of):
        # Where a clone has its build, or the compiler's paths would be others and ccache would know none of them.
        self.root, self.build = work / "source", work / "source/build"
        files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True,
                               capture_output=True, text=True).stdout.split("\0")
        present = [file for file in files if (ROOT / file).is_file()]
        for file in present:
            self._copy(file)
        kept = set(present)
        for path in self.root.rglob("*"):
            if path.is_file() and not path.is_relative_to(self.build) and str(path.relative_to(self.root)) not in kept:
                path.unlink()  # of an earlier run; CMake would find it
        self._configure(build, alone, end, run)
        super().__init__(self.root, self.build, end, run)

    def _copy(self, file):
        to = self.root / file
        if to.is_file() and to.read_bytes() == (ROOT / file).read_bytes():
            return
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, to)

    def _configure(self, build, alone, end, run):
        cache = build / "CMakeCache.txt"
        if not cache.is_file():
            sys.exit(f"{build} is not configured, and the copy is to be built alike: run deploy/build.sh first, "
                     "or name another folder: --build DIR")
        values = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(), re.M))
        options = [f"-D{name}={values[name]}" for name in ("TANDEM_TORCH_ROOT", "TANDEM_UNITY_BATCH", "TANDEM_CUDA")
                   if name in values]
        command = ["cmake", "-S", str(self.root), "--preset", "release", "-B", str(self.build), *options,
                   f"-DTANDEM_ALONE={';'.join(sorted(alone))}"]
        outcome = run(command, self.root, end.left())
        if outcome == "over":
            raise OutOfTime("the copy was being configured")
        if outcome == "failed":
            sys.exit(f"the copy is not configured; this says why:\n{' '.join(command)}")

    def verdict(self, file, text, tests):
        """What becomes of the tests where the file has this text: `killed`, `SURVIVED` or `not compiled`, and
        how it was noticed. The file is put back."""
        path = self.root / file
        before = path.read_text()
        try:
            path.write_text(text)
            for test in tests:
                if not self.builds(self.programs[test]):
                    return "not compiled", ""
                if how := self.notices(test):
                    return "killed", how
            return "SURVIVED", ""
        finally:
            path.write_text(before)
