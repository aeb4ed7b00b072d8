"""Every script explains itself on --help and refuses arguments it does not know, doing nothing."""
import os
import pathlib
import signal
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Not started by hand: one is sourced, and the other starts the compiler.
SCRIPTS = sorted({*ROOT.glob("deploy/*.sh"), *ROOT.glob("deploy/scripts/*.sh"), *ROOT.glob("deploy/slurm/*.sh")}
                 - {ROOT / "deploy" / "common.sh", ROOT / "deploy" / "scripts" / "compile_header.sh"})


def run(script, *arguments):
    """A build folder that is not there: whoever starts to work all the same fails."""
    environment = os.environ | {"TANDEM_BUILD_DIR": str(ROOT / "no-such-build")}
    with subprocess.Popen([str(script), *arguments], cwd="/", env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          start_new_session=True) as process:
        try:
            out, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


class UsageTest(unittest.TestCase):
    def setUp(self):
        for script in SCRIPTS:  # one that does not look at its arguments would start to work
            if script.name == "gpu_check.sh":  # is copied alone, without common.sh
                continue
            self.assertIn('usage_if_asked "$@"', script.read_text(), script.name)

    def test_help_is_printed_and_nothing_is_done(self):
        self.assertGreaterEqual(len(SCRIPTS), 8)
        for script in SCRIPTS:
            name = str(script.relative_to(ROOT))
            for flag in (["--help"], ["-h"], ["--no-such-argument", "-h"]):
                with self.subTest(script=name, flag=flag):
                    done = run(script, *flag)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertIn(f"  {name}", done.stdout)
                    self.assertNotIn("==>", done.stdout)

    def test_unknown_arguments_are_refused_with_the_usage(self):
        for script in SCRIPTS:
            name = str(script.relative_to(ROOT))
            if name == "deploy/test.sh":  # all of its arguments are ctest's
                continue
            with self.subTest(script=name):
                done = run(script, "--no-such-argument")
                self.assertEqual((done.returncode, done.stdout), (64, ""))
                self.assertIn("--no-such-argument", done.stderr.splitlines()[-1])
                self.assertIn(f"  {name}", done.stderr)

    def test_launch_needs_a_config_and_programs(self):
        launch = ROOT / "deploy" / "launch.sh"
        done = run(launch)
        self.assertEqual(done.returncode, 64)
        self.assertIn("CONFIG", done.stderr)
        done = run(launch, "no-such.yaml")
        self.assertEqual(done.returncode, 66)
        self.assertIn("no-such.yaml", done.stderr)
        done = run(launch, str(ROOT / "configs" / "quickstart.yaml"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("deploy/build.sh", done.stderr)

    def test_quickstart_refuses_settings_without_a_value_before_it_works(self):
        done = run(ROOT / "deploy" / "quickstart.sh", "--set", "rollout.n")
        self.assertEqual((done.returncode, done.stdout), (64, ""))
        self.assertIn("rollout.n", done.stderr)

    def test_a_benchmark_that_has_no_model_names_the_script_that_makes_it_before_it_builds(self):
        done = run(ROOT / "deploy" / "bench.sh", "--only=hosts", "--model=/no/such/model")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr, "no model in /no/such/model: run deploy/fetch_model.sh, or name one with --model\n")


if __name__ == "__main__":
    unittest.main()
