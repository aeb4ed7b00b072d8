"""What this machine lets the driver do: mount a small disk, make a network namespace, make a memory cgroup.

Each is tried once, since root alone says little: a container's has no CAP_SYS_ADMIN. What cannot be done skips the
cells that need it, with the reason.
"""
import contextlib
import functools
import pathlib
import shutil
import subprocess
import tempfile

import leftovers
import processes


class Unavailable(Exception):
    """This machine cannot make the fault."""


def tried(command):
    """Why a command fails, "" if it does not."""
    if shutil.which(command[0]) is None:
        return f"{command[0]} is not installed"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (done.stderr.strip().splitlines() or [f"{command[0]} ended with {done.returncode}"])[-1]
    return said if done.returncode != 0 else ""


@functools.cache
def no_small_disk():
    with tempfile.TemporaryDirectory(prefix="faults-try-") as folder:
        why = tried(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder])
        if not why:
            subprocess.run(["umount", "--lazy", folder], check=False)
    return f"no small disk can be mounted ({why})" if why else ""


@functools.cache
def no_namespace():
    why = next((f"{name} is not installed" for name in ("nsenter", "ip") if shutil.which(name) is None), "")
    why = why or tried(["unshare", "--net", "ip", "link", "set", "lo", "up"])
    return f"no network namespace can be made ({why})" if why else ""


class MemoryGroup:
    """A memory cgroup without room for another page, below the root of a hierarchy of version 1 or 2."""

    def __init__(self, name, root=pathlib.Path("/sys/fs/cgroup")):
        self.root, self.second = hierarchy(root)
        self.folder = self.root / name
        try:
            self.folder.mkdir()
            for file, value in ((("memory.swap.max", "0"), ("memory.oom.group", "1"), ("memory.max", "65536"))
                                if self.second else (("memory.limit_in_bytes", "65536"), ("memory.swappiness", "0"))):
                # Without swap in the kernel there is no file for it.
                if file != "memory.swap.max" or (self.folder / file).exists():
                    (self.folder / file).write_text(value, encoding="ascii")
        except OSError as error:
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            raise Unavailable(f"no memory cgroup can be made ({error.strerror})") from error

    def take(self, pid):
        (self.folder / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def hits(self):
        """How often the limit was met."""
        if not self.second:
            return int((self.folder / "memory.failcnt").read_text(encoding="ascii"))
        events = dict(line.split() for line in (self.folder / "memory.events").read_text(encoding="ascii").splitlines())
        return int(events["max"])

    def remove(self):
        leftovers.remove_group(self.folder)


def hierarchy(root):
    """(where memory cgroups are made, whether it is of version 2). Raises Unavailable."""
    first = root / "memory"
    if (first / "memory.limit_in_bytes").exists():
        return first, False
    with contextlib.suppress(OSError):
        if "memory" in (root / "cgroup.controllers").read_text(encoding="ascii").split():
            control = root / "cgroup.subtree_control"
            if "memory" not in control.read_text(encoding="ascii").split():
                control.write_text("+memory", encoding="ascii")
            return root, True
    raise Unavailable("there is no hierarchy of memory cgroups that can be written")


@functools.cache
def no_memory_group():
    try:
        MemoryGroup(leftovers.group_name(processes.driver(), "try")).remove()
    except Unavailable as error:
        return str(error)
    return ""


def unavailable(role, fault):
    """Why this machine cannot make a fault; "" if it can."""
    if fault == "link-down":
        return no_namespace()
    if fault == "disk-full" and role == "controller":
        return no_small_disk()
    return no_memory_group() if fault == "memory" else ""
