"""What is done to a process of a run: one function per fault, called when the run waits at the cell's place.

Each takes a Scene. `go()` lets the process that waits go on. A fault that ends by itself returns when it has. A fault
that cannot be made on this machine raises abilities.Unavailable.

Whether a fault met anything is an event that is waited for, whatever the machine's load: only a fault that meets nothing in
a run that does not end takes EVENT_SECONDS.
"""
import errno
import pathlib
import signal
import subprocess
import time

import abilities
import leftovers
import processes
from processes import EVENT_SECONDS

PAUSE_SECONDS = 6  # longer than a worker may be silent (run.py)
LONG_PAUSE_SECONDS = 30  # longer than all limits of run.py but those of a lost controller and of registering
REWARD_PAUSE_SECONDS = 6  # shorter than a reward is waited for and asked again (run.py): a longer pause is a stop
SLOW_SECONDS, SLOW_SHARE = 6, 1 / 20
NETWORK_SECONDS = 6
CLOCK_SECONDS = 3600
DYING_SECONDS = 10  # of a process that has met its limit of memory, and mostly ends by that


class Scene:
    """A run that waits at a place, and the process that is hit."""

    def __init__(self, run, role, rank, marker, pause_seconds=PAUSE_SECONDS):
        self.run, self.role, self.rank, self.marker = run, role, rank, marker
        self.pause_seconds = REWARD_PAUSE_SECONDS if role == "reward" else pause_seconds
        self.pid = run.find(role, rank)
        self.touched = True  # False: the fault met nothing

    def go(self):
        pathlib.Path(f"{self.marker}.go").touch()

    def send(self, number):
        if self.pid is not None:
            processes.send(self.pid, number)


def kill(scene):
    scene.send(signal.SIGKILL)
    scene.go()


def stop(scene):
    scene.send(signal.SIGSTOP)
    processes.wait_until(lambda: processes.stopped(scene.pid), EVENT_SECONDS)
    scene.go()
    if scene.role == "launcher":  # nobody watches a launcher but its user; the run finishes without it
        finished = scene.run.run_dir / "checkpoints/finished"
        scene.touched = processes.wait_until(finished.exists, EVENT_SECONDS)
        scene.send(signal.SIGCONT)


def pause(scene):
    scene.send(signal.SIGSTOP)
    processes.wait_until(lambda: processes.stopped(scene.pid), EVENT_SECONDS)
    scene.go()
    time.sleep(scene.pause_seconds)
    scene.send(signal.SIGCONT)


def hang(scene):
    """The thread waits for ever: nobody lets it go."""
    del scene


def slow(scene):
    scene.go()
    end = time.monotonic() + SLOW_SECONDS
    while time.monotonic() < end and processes.read(scene.pid, "stat"):
        scene.send(signal.SIGSTOP)
        time.sleep(0.095)
        scene.send(signal.SIGCONT)
        time.sleep(0.095 * SLOW_SHARE)


def network(mode):
    """A relay in front of the process that misbehaves for a while."""
    def misbehave(scene):
        relay = scene.run.relay
        relay.misbehave(mode)
        scene.go()
        processes.wait_until(lambda: scene.run.ended() or relay.touched > 0, EVENT_SECONDS)
        processes.wait_until(lambda: scene.run.ended() or relay.mode == "pass", NETWORK_SECONDS)
        scene.touched = relay.touched > 0
        relay.behave()
    return misbehave


def link_down(scene):
    inside = ["nsenter", "--net", "--target", str(scene.pid), "ip", "link", "set", "lo"]
    subprocess.run([*inside, "down"], check=True)
    scene.go()
    time.sleep(NETWORK_SECONDS)
    if not scene.run.ended():
        subprocess.run([*inside, "up"], check=False)


def full_disk(scene):
    """Another file takes all that is left of the small disk that the run directory is on, for a while."""
    filler = scene.run.run_dir / "filler"
    with filler.open("wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    scene.go()
    scene.touched = processes.wait_until(lambda: scene.run.ended() or "no space" in scene.run.said().lower(),
                                         EVENT_SECONDS)
    time.sleep(1)
    filler.unlink()


# What each role writes: the controller its store and the checkpoint's state, a trainer its part of it.
WRITES = {"controller": "/run/", "trainer": "/checkpoints/"}


def disk(name):
    """Writing by the process fails with this errno until it has met it, and for a moment more."""
    def fail(scene):
        control = scene.run.controls[f"{scene.role}-{scene.rank}"]
        control.fail_disk(name, WRITES[scene.role])
        scene.go()
        processes.wait_until(lambda: scene.run.ended() or control.disk_failures() > 0, EVENT_SECONDS)
        time.sleep(1)
        control.heal_disk()
        scene.touched = control.disk_failures() > 0
    return fail


def disk_full(scene):
    """A small disk under the whole run for the controller; for one process alone, its writing fails."""
    return full_disk(scene) if scene.run.small_disk else disk("ENOSPC")(scene)


def memory(scene):
    """A memory cgroup of its own without room for another page; the kernel kills the process."""
    def over():
        return scene.run.ended() or not processes.read(scene.pid, "cmdline")
    group = abilities.MemoryGroup(leftovers.group_name(processes.driver(), scene.pid))
    try:
        group.take(scene.pid)
        scene.go()
        processes.wait_until(lambda: over() or group.hits() > 0, EVENT_SECONDS)
        processes.wait_until(over, DYING_SECONDS)
        scene.touched = group.hits() > 0
    finally:
        group.remove()


def clock(sign):
    def step(scene):
        control = scene.run.controls[f"{scene.role}-{scene.rank}"]
        control.step_clock(sign * CLOCK_SECONDS)
        scene.go()
        scene.run.wait()
        # Others may never read the time of day, which is as good.
        scene.touched = scene.role != "controller" or control.clock_reads() > 0
    return step


NEMESES = {"kill": kill, "pause": pause, "stop": stop, "hang": hang, "exit": None, "slow": slow,
           **{mode: network(mode) for mode in ("cut", "half-open", "delay", "drop", "truncate", "flip")},
           "link-down": link_down, "disk-full": disk_full, "eio": disk("EIO"), "memory": memory,
           "clock-forward": clock(1), "clock-back": clock(-1)}
RELAYED = ("cut", "half-open", "delay", "drop", "truncate", "flip")


def relayed(run_dir, role):
    """Whose connections go through a relay, and to which socket: the controller's to the role's process."""
    if role == "controller":
        return "trainer-1", run_dir / "controller.sock"
    if role == "reward":
        return "controller-0", run_dir.parent / "reward.sock"
    return "controller-0", run_dir / f"{role}-1.sock"
