"""The unit of deploy/systemd: what its programs may reach, as systemd itself reads it where that is installed."""
import collections
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
UNIT = ROOT / "deploy/systemd/tandem@.service"
HAS_SYSTEMD = shutil.which("systemd-analyze") is not None


def settings(wanted="[Service]"):
    """{key: its values} of a section."""
    found = collections.defaultdict(list)
    section = ""
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            section = line
        elif section == wanted and line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found[key].append(value)
    return found


def calls_in(group):
    """The system calls of a group of systemd's, as "@chown"."""
    listed = subprocess.run(["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True).stdout
    words = [line.strip() for line in listed.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
    return {call for word in words for call in (calls_in(word) if word.startswith("@") else {word})}


def allowed_calls():
    """What SystemCallFilter leaves."""
    allowed = set()
    for line in settings()["SystemCallFilter"]:
        named = {call for word in line.removeprefix("~").split()
                 for call in (calls_in(word) if word.startswith("@") else {word})}
        allowed = allowed - named if line.startswith("~") else allowed | named
    return allowed


class UnitTest(unittest.TestCase):
    def test_what_a_run_needs_is_open(self):
        unit = settings()
        self.assertEqual(unit["StateDirectory"], ["tandem"])  # the one folder that ProtectSystem=strict leaves
        self.assertEqual(unit["WorkingDirectory"], ["/var/lib/tandem"])
        self.assertEqual(unit["DeviceAllow"], ["char-nvidia* rw"])
        for family in ("AF_UNIX", "AF_INET", "AF_INET6"):
            self.assertIn(family, unit["RestrictAddressFamilies"][0].split())
        # Code that is compiled as it runs, GPUs, and sockets under /tmp that the launcher's processes share.
        for closed in ("MemoryDenyWriteExecute", "PrivateDevices", "PrivateNetwork", "PrivateUsers"):
            self.assertNotIn(closed, unit)

    def test_drivers_whose_devices_are_opened_are_loaded_before(self):
        unit = settings("[Unit]")
        before = " ".join(unit["After"]).split()
        for module in ("nvidia", "nvidia_uvm"):
            self.assertIn(f"modprobe@{module}.service", unit["Wants"][0].split())
            self.assertIn(f"modprobe@{module}.service", before)

    def test_the_rest_is_closed(self):
        unit = settings()
        for key in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "ProtectKernelModules", "ProtectKernelTunables",
                    "ProtectControlGroups", "RestrictNamespaces", "RestrictSUIDSGID", "LockPersonality"):
            self.assertEqual(unit[key], ["yes"], key)
        self.assertEqual(unit["ProtectSystem"], ["strict"])
        self.assertEqual(unit["CapabilityBoundingSet"], [""])
        self.assertEqual(unit["DevicePolicy"], ["closed"])

    @unittest.skipUnless(HAS_SYSTEMD, "systemd-analyze is not installed")
    def test_system_calls_of_a_run_are_allowed_and_those_of_an_attack_are_not(self):
        allowed = allowed_calls()
        needed = {"arch_prctl", "clone3", "execve", "fallocate", "fchown", "flock", "futex", "ioctl", "kill", "madvise",
                  "memfd_create", "mincore", "openat2", "prctl", "renameat2", "sched_getaffinity", "sched_setaffinity",
                  "sendmsg", "statfs", "tgkill", "umask"}
        self.assertEqual(needed - allowed, set())
        # setns and unshare, which @system-service has, are RestrictNamespaces'.
        self.assertEqual(allowed & {"bpf", "init_module", "kexec_load", "mount", "pivot_root", "ptrace", "reboot", "setuid",
                                    "swapon"}, set())

    @unittest.skipUnless(HAS_SYSTEMD, "systemd-analyze is not installed")
    def test_systemd_understands_every_line_and_finds_the_exposure_small(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder, "tandem@run.service")
            unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.M))
            done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            # From 0 (nothing can be reached) to 10; in tenths. Root, the network and GPUs make most of it.
            done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=25", unit],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout[-2000:])


if __name__ == "__main__":
    unittest.main()
