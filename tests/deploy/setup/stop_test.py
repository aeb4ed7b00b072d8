"""Stopping a script at work: what it says, how it ends, and what is left of what it started."""
import os
import pathlib
import signal
import time
import unittest

from setup_test import ScriptTest

# Where each script can be at work: the stand-in that does not end.
PARTS = [("setup.sh", "apt-install"), ("setup.sh", "venv"), ("setup.sh", "download"), ("setup.sh", "install"),
         ("build.sh", "cmake"), ("build.sh", "ninja"), ("quickstart.sh", "download"), ("quickstart.sh", "cmake"),
         ("quickstart.sh", "ninja"), ("fetch_model.sh", "download")]


def runs(pid):
    """One that has ended and that nobody has waited for does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class StopTest(ScriptTest):
    def at_work(self, script, what):
        """The script, started, and the id of the stand-in that it waits for."""
        self.checkout.missing_packages()
        if script == "fetch_model.sh":
            self.succeeds("setup.sh")
            self.succeeds("build.sh")
        pid = self.checkout.slow(what)
        process = self.checkout.start(script)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        end = time.monotonic() + 30
        while not pid.exists():
            self.assertIsNone(process.poll(), f"{script} ended before {what}")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        return process, int(pid.read_text())

    def ends(self, process, code):
        """What it said. What holds its stderr must end as well."""
        out, err = process.communicate(timeout=10)
        self.assertEqual(process.returncode, code, out + err)
        return err

    def test_ctrl_c_is_one_sentence_and_130_in_every_part(self):
        for script, what in PARTS:
            with self.subTest(script=script, at=what):
                self.setUp()
                process, _ = self.at_work(script, what)
                os.killpg(process.pid, signal.SIGINT)
                self.assertEqual(self.ends(process, 130), "stopped; start again to go on\n")

    def test_what_a_script_has_started_ends_with_it(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            for script, what in PARTS:
                with self.subTest(script=script, at=what, signal=number):
                    self.setUp()
                    process, child = self.at_work(script, what)
                    process.send_signal(number)  # to the script alone
                    self.assertEqual(self.ends(process, code).count("stopped; start again to go on\n"), 1)
                    self.assertFalse(runs(child))


if __name__ == "__main__":
    unittest.main()
