"""Arguments and the environment: what is accepted, and what is refused before anything is done."""
import unittest

from setup_test import ScriptTest


class EnvironmentTest(ScriptTest):
    def test_numbers_of_the_environment_are_checked_first(self):
        for name, values, least in (("TANDEM_JOBS", ("0", "-3", "abc", "1.5", "08", "1 2"), 1),
                                    ("TANDEM_PROGRESS_SECONDS", ("x", "-1", "a[$(id)]"), 0)):
            for value in values:
                for script in ("quickstart.sh", "setup.sh", "build.sh"):
                    done = self.checkout.run(script, **{name: value})
                    self.assertEqual((done.returncode, done.stdout), (64, ""), (script, name, value))
                    self.assertIn(f'{name} is "{value}", and may be a whole number from {least}', done.stderr)
        self.assertEqual(self.checkout.calls(), [])

    def test_an_empty_one_is_none(self):
        self.assertIn("the build is complete", self.succeeds("build.sh", TANDEM_JOBS="", TANDEM_PROGRESS_SECONDS=""))


class ArgumentsTest(ScriptTest):
    def test_a_value_may_stand_behind_an_equals_sign(self):
        said = self.succeeds("quickstart.sh", "--steps=6", "--set=rollout.n=4")
        self.assertIn("trainer.total_training_steps=6", said)
        self.assertIn("--set rollout.n=4", said)
        for argument in ("--steps=", "--steps=x", "--set=n"):
            self.refused("quickstart.sh", argument)

    def refused(self, *command):
        done = self.checkout.run(*command)
        self.assertEqual((done.returncode, done.stdout), (64, ""), command)
        return done.stderr.splitlines()

    def test_nothing_is_ignored_and_the_error_stands_last(self):
        for command in (["setup.sh", "--dev", "x"], ["setup.sh", "x"], ["build.sh", "--x"], ["quickstart.sh", "x"]):
            said = self.refused(*command)
            self.assertEqual(said[-1], f"error: unknown argument {command[-1]}")
            self.assertGreater(len(said), 3)
        self.assertEqual(self.checkout.calls(), [])

    def test_help_is_given_wherever_it_stands(self):
        for command in (["quickstart.sh", "--steps", "6", "-h"], ["setup.sh", "--dev", "--help"],
                        ["build.sh", "tandemctl", "--help"]):
            self.assertIn(f"  deploy/{command[0]}", self.succeeds(*command))
        self.assertEqual(self.checkout.calls(), [])


if __name__ == "__main__":
    unittest.main()
