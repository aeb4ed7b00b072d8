"""Processes of a cell: found by a mark in their environment, whoever started them."""
import os
import pathlib
import signal
import time

MARK = "TANDEM_FAULTS_CELL"
EVENT_SECONDS = 240  # for what is to happen: far longer than it takes on a loaded machine, less than a run may take


def read(pid, name):
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended
        return b""


def start_time(pid):
    """In ticks since the machine's start; None if there is no such process."""
    fields = read(pid, "stat").rpartition(b") ")[2].split()
    return int(fields[19]) if fields and fields[0] not in (b"Z", b"X") else None


def driver():
    """(id, start time) of this process, which no other process ever has."""
    return os.getpid(), start_time(os.getpid())


def running(folder):
    """{pid: words of its command line} of all processes that were started for a cell, in order of their ids."""
    mark = f"{MARK}={folder}".encode()
    found = {}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        if mark in read(pid, "environ").split(b"\0"):
            words = read(pid, "cmdline").decode(errors="replace").split("\0")[:-1]
            if words:  # else it is dead, and not reaped yet
                found[pid] = words
    return found


PROGRAMS = {"controller": "tandem-controller", "trainer": "tandem-trainer", "rollout": "tandem-rollout",
            "launcher": "tandem-launcher", "reward": "tandem-letter-rewards"}


def find(folder, role, rank):
    """The id of a cell's process, None if it does not run."""
    for pid, words in running(folder).items():
        if pathlib.Path(words[0]).name != PROGRAMS[role]:
            continue
        if role not in ("trainer", "rollout") or words[words.index("--rank") + 1] == str(rank):
            return pid
    return None


def send(pid, number):
    """A signal; False if the process has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_until(done, limit):
    """Looks every 20 ms whether `done`; False after `limit` seconds, which only ends what hangs."""
    end = time.monotonic() + limit
    while not done():
        if time.monotonic() >= end:
            return False
        time.sleep(0.02)
    return True


def stopped(pid):
    return read(pid, "stat").rpartition(b") ")[2][:1] in (b"T", b"")


def left_behind(folder, limit=EVENT_SECONDS):
    """Command lines of processes that do not end although their run has; they are killed then."""
    if wait_until(lambda: not running(folder), limit):
        return []
    left = running(folder)
    for pid in left:
        send(pid, signal.SIGKILL)
    return [f"{pid} {' '.join(words)[:120]}" for pid, words in left.items()]
