"""The quickstart as a whole: its parts, how long it trains, where its files go."""
import unittest

from checkout import ROOT, files_below
from setup_test import ScriptTest


class QuickstartTest(ScriptTest):
    def trained(self, *arguments, **variables):
        """The arguments of the launcher."""
        said = self.succeeds("quickstart.sh", *arguments, **variables)
        return said[said.index("trained in "):]

    def test_parts_in_order_and_nothing_twice(self):
        self.checkout.missing_packages()
        said = self.succeeds("quickstart.sh")
        parts = ["1/5 set-up", "2/5 build", "3/5 model", "4/5 data", "5/5 training"]
        places = [said.index(f"quickstart: {part}") for part in parts]
        self.assertEqual(places, sorted(places))
        self.assertIn("2/5 build: 120 of 310 objects", said)
        self.checkout.forget_calls()
        self.succeeds("quickstart.sh")
        for name in ("apt-get", "python", "cmake -S"):
            self.assertEqual(self.checkout.calls(name), [], name)

    def test_time_decides_the_steps_unless_they_are_given(self):
        said = self.trained()
        self.assertIn("trainer.max_seconds=300 --set trainer.min_training_steps=8", said)
        self.assertIn("rollout.val_kwargs.n=4", said)
        self.assertNotIn("rollout.val_kwargs.n=4", self.trained("rollout.val_kwargs.n=2"))
        for arguments in (["--steps", "50"], ["trainer.total_training_steps=3"], ["--start-paused"],
                          ["--set", "trainer.max_seconds=60"]):
            self.assertNotIn("trainer.max_seconds=300", self.trained(*arguments), arguments)

    def test_the_rise_expected_is_that_of_the_steps(self):
        self.assertIn("total_training_steps=10 --set trainer.expected_val_rise=0.08",
                      self.trained("--steps", "10"))
        self.assertNotIn("expected_val_rise", self.trained("--steps", "50"))
        self.assertNotIn("=0.08", self.trained("--steps", "10", "trainer.expected_val_rise=0.2"))

    def test_arguments_reach_the_launcher_whole(self):
        said = self.trained("--set", "model.path=a b", "rollout.n=4", "--start-paused")
        self.assertIn("--set model.path=a b --set rollout.n=4 --start-paused", said)

    def test_wrong_arguments_are_refused(self):
        for arguments in (["--steps", "0"], ["--steps"], ["--steps", "x"], ["--set"], ["--set", "n"]):
            done = self.checkout.run("quickstart.sh", *arguments)
            self.assertEqual((done.returncode, done.stdout), (64, ""), arguments)

    def test_what_would_fail_later_is_said_first(self):
        said = self.fails("quickstart.sh", FREE_MIB="2000")
        self.assertRegex(said, r"the quickstart needs \d+ MiB in .*2000 MiB are free")
        deep = "/tmp/" + "d" * 80
        said = self.fails("quickstart.sh", TANDEM_HOME=deep)
        self.assertIn("sockets", said)
        self.assertIn("--set cluster.run_dir=", said)
        self.assertEqual(self.checkout.calls("dpkg-query"), [])

    def test_the_document_has_the_room_that_the_scripts_look_for(self):
        self.assertIn("needs 9150 MiB", self.fails("quickstart.sh", FREE_MIB="2000"))
        document = (ROOT / "docs" / "start" / "quickstart.md").read_text()
        amounts = self.checkout.shell("echo $TORCH_MIB $BUILD_MIB $MODEL_MIB $RUN_MIB").stdout.split()
        self.assertEqual(sum(map(int, amounts)), 9150)
        self.assertIn("9150 MiB in a fresh\nclone", document)
        for what, amount in zip(("LibTorch", "the build", "the model", "a run"), amounts):
            self.assertRegex(document, rf"\| {what}[^|]*\| {amount} \|")

    def test_a_read_only_checkout_is_left_as_it_is(self):
        before = files_below(self.checkout.root)
        build = self.checkout.fakes.parent / "b"
        done = self.checkout.run("quickstart.sh", read_only=True, TANDEM_BUILD_DIR=str(build))
        if done.returncode == 77:
            self.skipTest("no mounts are allowed here")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(files_below(self.checkout.root), before)
        home = build.parent / "b-home"
        self.assertIn(f"trained in {home}:", done.stdout)
        for name in (".deps/venv", "models/SmolLM2-135M-Instruct", "data/addition"):
            self.assertIn(name, files_below(home))
        self.assertIn(f"-DTANDEM_TORCH_ROOT={home}", " ".join(self.checkout.calls("cmake -S")))

    def test_a_read_only_checkout_without_another_folder_is_refused(self):
        done = self.checkout.run("quickstart.sh", read_only=True)
        if done.returncode == 77:
            self.skipTest("no mounts are allowed here")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot be written", done.stderr)
        self.assertIn("TANDEM_HOME=FOLDER deploy/quickstart.sh", done.stderr)


if __name__ == "__main__":
    unittest.main()
