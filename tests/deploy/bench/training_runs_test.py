"""What is read of a run's store, and what is made of reward curves."""
import contextlib
import io
import json
import pathlib
import sqlite3
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "deploy" / "bench"))

import lora  # noqa: E402  pylint: disable=wrong-import-position
import partial  # noqa: E402  pylint: disable=wrong-import-position
import training_runs  # noqa: E402  pylint: disable=wrong-import-position


class CurvesTest(unittest.TestCase):
    def test_a_value_is_smoothed_over_those_around_it_and_fewer_at_the_ends(self):
        self.assertEqual(training_runs.smoothed([0, 3, 6, 9, 27], window=3), [1.5, 3, 6, 14, 18])

    def test_lag_counts_steps_to_a_part_of_the_way_of_the_other(self):
        off = [0.0] * 5 + [1.0] * 10
        later = [0.0] * 8 + [1.0] * 7
        self.assertEqual(partial.lag(off, later, 0.5), 3)
        self.assertEqual(partial.lag(off, off, 0.5), 0)
        self.assertIsNone(partial.lag(off, [0.0] * 15, 0.5))


class CompareTest(unittest.TestCase):
    def shown(self, names):
        steps = [{"critic/rewards/mean": i / 9, "timing_s/step": 2.0, "timing_s/gen": 1.0,
                  "timing_s/update_actor": 1.0, "response_length/max": 9} for i in range(9)]
        result = {name: {1: partial.figures(steps)} for name in names}
        partial.compare(result)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            partial.show(result)
        return [line for line in out.getvalue().splitlines() if line.startswith("| split_2")][0]

    def test_a_run_whose_counterpart_is_missing_is_not_measured(self):
        self.assertEqual(self.shown(["split_2"]).count("not measured"), 3)
        self.assertNotIn("not measured", self.shown(["off", "split_2"]))


class StoreTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.run_dir = pathlib.Path(folder.name)
        store = sqlite3.connect(self.run_dir / "run.db")
        store.execute("CREATE TABLE steps (step INTEGER, metrics TEXT)")
        store.execute("CREATE TABLE evaluations (step INTEGER, metrics TEXT)")
        store.execute("CREATE TABLE phases (step INTEGER, ordinal INTEGER, phase TEXT, seconds REAL, "
                      "peak_bytes INTEGER, workers TEXT)")
        for step in (2, 0, 1):
            store.execute("INSERT INTO steps VALUES (?, ?)", (step, json.dumps({"reward": step})))
            store.execute("INSERT INTO phases VALUES (?, 6, 'train', 1.5, ?, ?)",
                          (step, 100 + step, json.dumps(self.workers(step))))
        store.commit()
        store.close()

    @staticmethod
    def workers(step):
        def ledger(*entries):
            return {"entries": [list(entry) for entry in entries]}
        return [{"role": "trainer", "rank": 1, "ledger": ledger(["master", 0, 7, 7])},
                {"role": "trainer", "rank": 0, "ledger": ledger(["master", 0, 40 + step, 99])},
                {"role": "rollout", "rank": 0, "ledger": ledger(["weights", 0, 20, 20])}]

    def test_steps_come_in_order_and_without_the_evaluation_before_them(self):
        self.assertEqual(training_runs.Run(self.run_dir).steps(), [{"reward": 1}, {"reward": 2}])

    def test_held_bytes_are_those_of_pair_0_in_the_last_pass(self):
        self.assertEqual(lora.held_bytes(training_runs.Run(self.run_dir)),
                         {"trainer": {"master": 42}, "rollout": {"weights": 20}})

    def test_a_checkpoint_is_counted_by_what_its_files_are_for(self):
        for step, size in ((9, 3), (10, 5)):
            folder = self.run_dir / "checkpoints" / f"step_{step}"
            (folder / "lora_adapter").mkdir(parents=True)
            (folder / "training_state-00000-of-00001.safetensors").write_bytes(b"x" * size)
            (folder / "lora_adapter" / "adapter_model.safetensors").write_bytes(b"x" * 2)
        self.assertEqual(lora.checkpoint_bytes(self.run_dir), {"training state": 5, "adapters": 2, "model": 0})


if __name__ == "__main__":
    unittest.main()
