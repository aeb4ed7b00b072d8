#!/usr/bin/env python3
"""Runs the tests repeatedly on a busy machine that sometimes stops.

  deploy/scripts/stress_tests.py [--build DIR] [--runs 20] [--seed 1] [--busy 2] [--stop-seconds 5]
                                 [--run-seconds 3600] [-- ctest arguments]

Beside each run two loops keep two cores busy, and processes that the tests started, one after the
other, are stopped (SIGSTOP) for up to 5 seconds and then continue. A test that depends on time fails then. The
seed decides when and for how long, and which of the processes that are there. Prints how often each
test failed, in which runs and how; exits with 1 if one did, if a run did not end within --run-seconds,
or if processes were left behind. Tests that a run was waiting for when it was ended are among those that
failed, as "did not end". The logs of failed runs stay in DIR/Testing/stress. When it ends or is
interrupted, nothing that it started or stopped is left. Nothing is tried a second time.
"""
import argparse
import collections
import ctypes
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import test_verdict

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARK = "TANDEM_STRESS_MARK"
PAUSE = 0.5  # seconds between two stops, at most


def die_with_us():
    """In a child: SIGKILL where its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def marked(mark, but=()):
    """Ids of the processes that were started under this mark, whoever their parent is by now."""
    found, wanted = [], f"{MARK}={mark}".encode()
    for file in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            # A process that has ended and was not waited for has none.
            if wanted in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
        except OSError:
            pass
    return sorted(pid for pid in found if pid not in but)


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except OSError:
        return False


def words_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


class Stopper:
    """Stops a process of the tests, lets it go on, and takes the next one, until it is closed."""

    def __init__(self, mark, ctest, seconds, rng):
        self.stops = 0
        self._mark, self._ctest, self._seconds, self._rng = mark, ctest, seconds, rng
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self):
        while not self._end.wait(self._rng.uniform(0, PAUSE)):
            place, length = self._rng.random(), self._rng.uniform(0, self._seconds)
            pids = marked(self._mark, but={self._ctest})
            if not pids:
                continue
            pid = pids[int(place * len(pids))]
            if send(pid, signal.SIGSTOP):
                self.stops += 1
                self._end.wait(length)
                send(pid, signal.SIGCONT)

    def close(self):
        self._end.set()
        self._thread.join()


def busy_loops(count):
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=die_with_us)
            for _ in range(count)]


def read_unended(log):
    """(tests that had begun and not ended, {test that had failed: how}) of ctest's output up to where it
    was killed: there is no JUnit file then."""
    text = log.read_text(errors="replace")
    begun = dict(re.findall(r"^ +Start +(\d+): (.+)$", text, re.M))
    ended = dict(re.findall(r"^ *\d+/\d+ Test +#(\d+): .*?\.{2,} *([^. ].*?) +[\d.]+ sec", text, re.M))
    failed = {begun[number]: how.strip("*") for number, how in ended.items()
              if number in begun and how.startswith("***") and how != "***Skipped"}
    return [name for number, name in begun.items() if number not in ended], failed


def kill_marked(mark, grace=2.0):
    """Kills what is there after `grace` seconds; its command lines."""
    end = time.monotonic() + grace
    while marked(mark) and time.monotonic() < end:
        time.sleep(0.1)
    left = {pid: words_of(pid) for pid in marked(mark)}
    while pids := marked(mark):
        for pid in pids:
            send(pid, signal.SIGKILL)
        time.sleep(0.02)
    return [words for words in left.values() if words]


class Suite:
    """What became of all runs."""

    def __init__(self, args, expected):
        self.args, self.expected = args, expected
        self.failures = collections.defaultdict(list)  # {test: ["run 3: Timeout"]}
        self.problems = []
        self.folder = args.build / "Testing" / "stress"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def run(self, number):
        """One run of ctest, with all that disturbs it."""
        args, mark = self.args, f"{os.getpid()}-{number}"
        stem = self.folder / f"run-{number:02d}"
        junit, log = stem.with_suffix(".xml"), stem.with_suffix(".log")
        command = ["ctest", "--test-dir", str(args.build), *test_verdict.OUTPUT, "-j", str(args.jobs), *args.ctest,
                   "--output-junit", str(junit)]
        busy, stopper, code = busy_loops(args.busy), None, None
        # ctest writes its --output-log only when it ends; what it prints is there when it is killed.
        with open(log, "wb") as out, \
                subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT,
                                 env={**os.environ, MARK: mark}, preexec_fn=die_with_us) as ctest:
            try:
                stopper = Stopper(mark, ctest.pid, args.stop_seconds, random.Random(f"{args.seed} {number}"))
                code = ctest.wait(args.run_seconds)
            except subprocess.TimeoutExpired:
                self.problems.append(f"run {number} did not end within {args.run_seconds:.0f} s")
            finally:
                if stopper:
                    stopper.close()
                for loop in busy:
                    loop.kill()
                    loop.wait()
                # Where ctest itself has ended, what is left was left by a test.
                left = kill_marked(mark, 2.0 if code is not None else 0.0)
        self.problems += [f"run {number} left a process: {words}" for words in left if code is not None]
        if code is None:
            return self.enter_unended(number, log), stopper.stops
        return f"{self.enter(number, junit, code, log)} failed", stopper.stops

    def enter(self, number, junit, code, log):
        """Enters the failures of a run; their number."""
        results, wrong = test_verdict.judge(self.expected, junit, code, log)
        self.problems += [f"run {number}: {problem}" for problem in wrong]
        bad = {name: result for name, result in results.items() if result.verdict == "failed"}
        for name, result in bad.items():
            self.failures[name].append(f"run {number}: {result.how}")
        if not bad and not wrong:
            log.unlink(missing_ok=True)
        junit.unlink(missing_ok=True)
        return len(bad)

    def enter_unended(self, number, log):
        """Enters what a run was waiting for when it was ended, and what had failed; a line about it."""
        hung, failed = read_unended(log)
        for name, how in [*((name, "did not end") for name in hung), *failed.items()]:
            self.failures[name].append(f"run {number}: {how}")
        return f"did not end ({', '.join(hung) or 'no test was running'}), {len(failed)} failed before"

    def tell(self, runs):
        """The table; whether all is well."""
        print(f"\nfailures in {runs} runs of {len(self.expected)} tests, seed {self.args.seed}:")
        for name, ways in sorted(self.failures.items(), key=lambda item: (-len(item[1]), item[0])):
            print(f"{len(ways):5d}  {name}  ({'; '.join(ways)})")
        for problem in self.problems:
            print(f"       {problem}")
        if self.failures or self.problems:
            print(f"logs: {self.folder}", flush=True)
            return False
        print("       none", flush=True)
        return True


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path,
                        default=pathlib.Path(os.environ.get("TANDEM_BUILD_DIR", ROOT / "build")))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--busy", type=int, default=2, help="loops that keep a core busy")
    parser.add_argument("--stop-seconds", type=float, default=5, help="the longest stop")
    parser.add_argument("--run-seconds", type=float, default=3600, help="after which a run is ended")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("ctest", nargs="*")
    args = parser.parse_args()
    args.build = args.build.resolve()
    return args


def end_at_once(number, _frame):
    raise SystemExit(128 + number)


def main():
    args = parse()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end_at_once)
    expected = test_verdict.names_of(args.build, args.ctest)
    if not expected:
        raise SystemExit("error: no test has been chosen")
    suite, done = Suite(args, expected), 0
    try:
        for number in range(1, args.runs + 1):
            begin = time.monotonic()
            what, stops = suite.run(number)
            done = number
            print(f"run {number} of {args.runs}: {what}, {stops} stops, {time.monotonic() - begin:.0f} s",
                  flush=True)
    finally:
        well = suite.tell(done)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
