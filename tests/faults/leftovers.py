"""What a driver leaves where it is killed: processes, mounts, cgroups and its folder. The next one takes them away.

The names of folders and cgroups hold the driver's id and start time, by which it is seen to be dead. Its launchers and
reward services end with it (preload.c).
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import processes

NAME = re.compile(r"(?:tandem-)?faults-(\d+)-(\d+)-")
GROUPS = (pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup"))
KEPT = "kept"  # this file says that a driver has ended and left its folder on purpose


def folder_prefix(driver):
    return f"faults-{driver[0]}-{driver[1]}-"


def group_name(driver, what):
    return f"tandem-faults-{driver[0]}-{driver[1]}-{what}"


def driver_of(name):
    """(id, start time) that a name holds, or None."""
    found = NAME.match(name)
    return (int(found[1]), int(found[2])) if found else None


def remove_group(group):
    """A cgroup; what is in it goes to its parent."""
    def empty():
        return not (group / "cgroup.procs").read_text(encoding="ascii").split()
    with contextlib.suppress(OSError):
        for pid in (group / "cgroup.procs").read_text(encoding="ascii").split():
            with contextlib.suppress(OSError):  # it has ended
                (group.parent / "cgroup.procs").write_text(pid, encoding="ascii")
        processes.wait_until(empty, processes.EVENT_SECONDS)
        group.rmdir()


def end_below(folder, driver):
    """Kills whatever was started for any cell below `folder`, and takes its disks and cgroups away."""
    mark = f"{processes.MARK}={folder}/".encode()
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        if any(entry.startswith(mark) for entry in processes.read(pid, "environ").split(b"\0")):
            processes.send(pid, signal.SIGKILL)
    for line in pathlib.Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        if line.split()[1].startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", line.split()[1]], check=False)
    for group in [group for root in GROUPS for group in root.glob(group_name(driver, "*"))]:
        remove_group(group)


def clean_up_after_the_dead():
    """Looks for what drivers that are dead have left, and takes it away, but for folders that were kept on purpose."""
    here = pathlib.Path(tempfile.gettempdir())
    places = [*here.glob("faults-*"), *(group for root in GROUPS for group in root.glob("tandem-faults-*"))]
    dead = {driver for driver in map(driver_of, (place.name for place in places))
            if driver is not None and processes.start_time(driver[0]) != driver[1]}
    for driver in sorted(dead):
        for folder in here.glob(folder_prefix(driver) + "*"):
            end_below(folder, driver)
            if not (folder / KEPT).exists():
                shutil.rmtree(folder, ignore_errors=True)
        end_below(here / folder_prefix(driver), driver)  # cgroups whose folder is gone
    return sorted(dead)
