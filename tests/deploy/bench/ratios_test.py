"""The table of ratios on small sets of figures."""
import contextlib
import io
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "deploy" / "bench"))

import ratios  # noqa: E402  pylint: disable=wrong-import-position


def row(tandem, ratio, fastest="packed", unit="GFLOP/s", **more):
    return {"tandem": tandem, "ratio": ratio, "fastest": fastest, "unit": unit, **more}


def table_of(add, figures):
    table = ratios.Table()
    add(table, figures)
    return table.rows


class OpsTest(unittest.TestCase):
    def rows(self, figures):
        return [(r["what"], r["ratio"], r["target"], r["met"]) for r in table_of(ratios.ops, figures)]

    def test_linear_names_the_worst_row_of_every_kernel_set_and_holds_it_to_its_share(self):
        self.assertEqual(self.rows({
            "linear amx 9x9 M=8 threads 2": row(90.0, 1.5, share=0.6, bound=150.0),
            "linear amx 9x9 M=32 threads 2": row(90.0, 1.2, share=0.7, bound=128.6),
            "linear amx 9x9 M=64 threads 2": row(90.0, 1.1, share=0.4, bound=225.0),
            "linear avx512bf16 9x9 M=64 threads 2": row(50.0, 1.01, share=0.84, bound=59.5)}), [
                ("linear amx ÷ oneDNN, M ≤ 32, GFLOP/s, 1 of 2 below, worst: 9x9 M=32", 1.2, "≥ 1.3", False),
                ("linear amx ÷ oneDNN, all M, GFLOP/s, 0 of 3 below, worst: 9x9 M=64", 1.1, "≥ 1.05", True),
                ("linear amx ÷ the machine's bound, GFLOP/s, 1 of 3 below, worst: 9x9 M=64", 0.4, "≥ 0.5", False),
                ("linear avx512bf16 ÷ oneDNN, all M, GFLOP/s, 1 of 1 below, worst: 9x9 M=64", 1.01, "≥ 1.05", False),
                ("linear avx512bf16 ÷ the machine's bound, GFLOP/s, 1 of 1 below, worst: 9x9 M=64", 0.84, "≥ 0.85",
                 False)])

    def test_of_rows_below_a_target_it_tells_how_many_have_to_be(self):
        # 1.05 times 99 is more than the machine could do, 1.05 times 80 is not.
        self.assertEqual(self.rows({
            "linear amx 9x9 M=64 threads 2": row(100.0, 100 / 99, share=0.98, bound=102.0),
            "linear amx 9x9 M=128 threads 2": row(80.0, 1.0, share=0.78, bound=102.0)})[0][0],
                         "linear amx ÷ oneDNN, all M, GFLOP/s, 2 of 2 below (1 beyond the bound), worst: 9x9 M=128")

    def test_attention_is_held_to_its_users_calls_and_to_reformulations_apart(self):
        self.assertEqual(self.rows({
            "decode 64 at 512 threads 2": row(10.0, 4.1, "gqa", "us"),
            "op decode attention 64 at 512 threads 2": row(10.0, 0.96, "grouped", "us"),
            "prefill 1 at 512 threads 2": row(10.0, 2.4, "sdpa", "us")}), [
                ("attention: decode 64 at 512 threads 2, us, gqa", 4.1, "≥ 4.0", True),
                ("attention: prefill 1 at 512 threads 2, us, sdpa", 2.4, "≥ 2.5", False),
                ("exactness: decode attention 64 at 512 threads 2, us, grouped", 0.96, "≥ 0.952", True)])

    def test_the_peer_is_shown_in_our_unit(self):
        peers = [r["peer"] for r in table_of(ratios.ops, {
            "op dX threads 2": row(100.0, 2.0), "op add threads 2": row(100.0, 2.0, unit="us")})]
        self.assertEqual(peers, [50.0, 200.0])

    def test_a_row_without_a_counterpart_is_not_measured(self):
        self.assertEqual(self.rows({"op add threads 2": {"tandem": 1.0, "unit": "us"},
                                    "linear amx 9x9 M=64 threads 2": {"tandem": 9.0, "unit": "GFLOP/s"},
                                    "peak of 2 threads amx": {"products": 1000.0}}), [
            ("linear amx ÷ oneDNN, all M, GFLOP/s, 1 shapes, first: 9x9 M=64", None, "≥ 1.05", None),
            ("linear amx ÷ the machine's bound, GFLOP/s, 1 shapes, first: 9x9 M=64", None, "≥ 0.5", None),
            ("exactness: add threads 2, us", None, "≥ 0.952", None)])


class PeersTest(unittest.TestCase):
    GENERATION = {f"{n} sequences": {"decode_tokens_per_s": 10.0 * n, "prefill_s": 0.5, "tokens_per_s": 8.0 * n}
                  for n in (1, 8, 32, 64)}
    TRAIN = {name: {"total_s": 6.0, "peak_rss_mib": 900.0} for name in ("keep", "recompute")}
    STEP = {"step": 3.0, "peak_pss_mib": 1000.0, "overhead_share": 0.03}

    def test_a_missing_peer_leaves_its_rows_not_measured(self):
        for table in (table_of(lambda t, own: ratios.generation(t, own, {"llama.cpp": {}, "transformers": {}}),
                               self.GENERATION),
                      table_of(lambda t, own: ratios.training(t, own, self.STEP, {"torch": {}, "trl": {}}),
                               self.TRAIN)):
            self.assertGreater(len(table), 5)
            self.assertEqual({(row["ratio"], row["met"], row["peer"]) for row in table}, {(None, None, None)})
            self.assertTrue(all(row["target"] for row in table))

    def test_a_peer_that_ran_is_held_to_its_target(self):
        llama = {"64 sequences": {"decode_tokens_per_s": 320.0, "prefill_tokens_per_s": 1e6}}
        table = table_of(lambda t, own: ratios.generation(t, own, {"llama.cpp": llama, "transformers": {}}),
                         self.GENERATION)
        found = {row["what"]: (row["ratio"], row["met"]) for row in table}
        self.assertEqual(found["decode tokens/s, 64 sequences, llama.cpp does not sample"], (2.0, True))
        self.assertEqual(found["prefill tokens/s, 64 sequences, llama.cpp"], (0.004, False))
        self.assertEqual(found["decode tokens/s, 8 sequences, llama.cpp does not sample"], (None, None))
        table = table_of(lambda t, own: ratios.training(t, own, self.STEP, {
            "torch": {"total_s": 12.0, "peak_rss_mib": 450.0}, "trl": {"step_s": 30.0, "peak_rss_mib": 500.0}}),
            self.TRAIN)
        self.assertEqual([(row["ratio"], row["met"]) for row in table],
                         [(0.5, True), (2.0, False), (0.5, True), (2.0, False), (10.0, True), (2.0, False)])


class ScalingTest(unittest.TestCase):
    def test_threads_sequences_and_the_memory_of_one_sequence(self):
        def at(rate, kv, resident):
            return {"tokens_per_s": rate, "kv_mib": kv, "resident_mib": resident}
        rows = table_of(ratios.scaling, {
            "1 threads": {"64 sequences": at(500.0, 192.0, 800.0), "256 sequences": at(600.0, 768.0, 1400.0)},
            "2 threads": {"64 sequences": at(900.0, 192.0, 808.0), "256 sequences": at(1200.0, 768.0, 1480.0)}})
        self.assertEqual([r["ratio"] for r in rows], [1.8, 2.0, 1.333, 1.167])
        self.assertEqual((rows[3]["tandem"], rows[3]["peer"]), (3.5, 3.0))
        self.assertTrue(all(r["met"] is None and r["target"] == "" for r in rows))

    def test_what_was_not_run_is_left_out(self):
        self.assertEqual(table_of(ratios.scaling, {}), [])


class ShowTest(unittest.TestCase):
    def test_only_a_missed_target_says_so(self):
        table = ratios.Table()
        table.add("met", 2.0, 1.0, 2.0, 1.5)
        table.add("missed", 1.0, 1.0, 1.0, 1.5)
        table.add("shown", 1.0, None, 0.5)
        table.add("absent", 1.0, None, None, 1.5)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            table.show()
        self.assertEqual([line.split()[0] for line in out.getvalue().splitlines() if line.endswith("missed")],
                         ["missed"])
        self.assertEqual([line.split()[0] for line in out.getvalue().splitlines()
                          if line.endswith("≥ 1.5   not measured")], ["absent"])


if __name__ == "__main__":
    unittest.main()
