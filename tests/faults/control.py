"""Speaks to preload.c inside the programs of a cell: a mapped file per process."""
import errno
import mmap
import struct

PROCESSES = ("launcher-0", "controller-0", "trainer-0", "trainer-1", "rollout-0", "rollout-1")
SIZE = 4096
CLOCK, ERRNO, FAILED, READS, PATH = 0, 8, 16, 24, 32


class Control:
    """The faults of one process."""

    def __init__(self, path):
        self.file = path.open("w+b")
        self.file.truncate(SIZE)
        self.map = mmap.mmap(self.file.fileno(), SIZE)

    def step_clock(self, seconds):
        """From now on the process's time of day is later by so much."""
        struct.pack_into("<q", self.map, CLOCK, seconds * 1000000000)

    def fail_disk(self, name, part):
        """Writing to files with `part` in their path fails with the errno of that name."""
        self.map[PATH:PATH + len(part) + 1] = part.encode() + b"\0"
        struct.pack_into("<i", self.map, ERRNO, getattr(errno, name))

    def heal_disk(self):
        struct.pack_into("<i", self.map, ERRNO, 0)

    def disk_failures(self):
        return struct.unpack_from("<q", self.map, FAILED)[0]

    def clock_reads(self):
        return struct.unpack_from("<q", self.map, READS)[0]

    def close(self):
        self.map.close()
        self.file.close()


def make_controls(folder):
    """{process name: Control}; the folder is TANDEM_FAULTS_CONTROL of all programs."""
    folder.mkdir()
    return {name: Control(folder / name) for name in PROCESSES}
