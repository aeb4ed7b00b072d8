"""Figures are read from the lines that benchmarks print; of several runs the best is kept."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "deploy" / "bench"))

from figures import keep_best, rows_of  # noqa: E402  pylint: disable=wrong-import-position

OP = "op add 64x576 threads 2: tandem {} eager {} add_ {} ratio {} ({}) us"
LINEAR = "linear amx 576x576 M=8 threads 2: tandem {} linear {} packed {} ratio {} ({}) bound 900 share {} GFLOP/s"


def best_of(*runs):
    best = {}
    for run in runs:
        keep_best(best, run)
    return best


class RowsTest(unittest.TestCase):
    def test_an_op_has_its_unit_and_the_name_of_its_fastest_counterpart(self):
        self.assertEqual(
            rows_of(OP.format("2.50", "6.00", "5.00", "2.00", "add_")),
            {"op add 64x576 threads 2": {"tandem": 2.5, "eager": 6.0, "add_": 5.0, "ratio": 2.0,
                                         "fastest": "add_", "unit": "us"}})

    def test_what_follows_the_ratio_is_read(self):
        row = rows_of(LINEAR.format("300.00", "100.00", "200.00", "1.50", "packed", "0.33"))
        self.assertEqual(row, {"linear amx 576x576 M=8 threads 2": {
            "tandem": 300.0, "linear": 100.0, "packed": 200.0, "ratio": 1.5, "fastest": "packed",
            "bound": 900.0, "share": 0.33, "unit": "GFLOP/s"}})

    def test_an_op_alone_has_no_ratio(self):
        self.assertEqual(rows_of("op add 64x576 threads 2: tandem 2.50 us"),
                         {"op add 64x576 threads 2": {"tandem": 2.5, "unit": "us"}})

    def test_generation_is_read_by_columns(self):
        self.assertEqual(
            rows_of("  64   0.500   2.000   2016.0   1638.4   4.90   188.7   900.5"),
            {"64 sequences": {"prefill_s": 0.5, "decode_s": 2.0, "decode_tokens_per_s": 2016.0,
                              "tokens_per_s": 1638.4, "cpu_s": 4.9, "kv_mib": 188.7, "resident_mib": 900.5}})

    def test_plain_rates_and_words(self):
        self.assertEqual(rows_of("memcpy     1.5 ms    20.00 GB/s"), {"memcpy": {"ms": 1.5, "GB/s": 20.0}})
        self.assertEqual(rows_of("sequences  prefill s  decode s"), {})


class KeepBestTest(unittest.TestCase):
    def test_of_an_op_in_us_the_run_with_our_smallest_time_is_kept_whole(self):
        slow = OP.format("3.00", "9.00", "3.30", "1.10", "add_")
        fast = OP.format("2.50", "4.00", "6.00", "1.60", "eager")
        for runs in ([slow], [fast]), ([fast], [slow]):
            self.assertEqual(best_of(*runs), rows_of(fast))

    def test_of_an_op_in_gflops_the_run_with_our_largest_rate_is_kept_whole(self):
        slow = LINEAR.format("250.00", "100.00", "100.00", "2.50", "linear", "0.28")
        fast = LINEAR.format("300.00", "100.00", "200.00", "1.50", "packed", "0.33")
        for runs in ([slow], [fast]), ([fast], [slow]):
            self.assertEqual(best_of(*runs), rows_of(fast))

    def test_of_generation_and_training_the_faster_run_is_kept_whole(self):
        generation = ["8 0.1 1.0 504.0 465.5 2.0 23.6 700.0", "8 0.2 0.8 630.0 512.0 2.1 23.6 701.0"]
        training = ["keep: forward_s 2.0 total_s 6.0 peak_rss_mib 900",
                    "keep: forward_s 2.5 total_s 5.5 peak_rss_mib 901"]
        for lines in generation, training:
            self.assertEqual(best_of(lines[:1], lines[1:]), rows_of(lines[1]))
            self.assertEqual(best_of(lines[1:], lines[:1]), rows_of(lines[1]))

    def test_other_times_and_rates_are_the_best_each(self):
        self.assertEqual(best_of(["copy   1.0 ms   10.0 GB/s"], ["copy   2.0 ms   12.0 GB/s"]),
                         {"copy": {"ms": 1.0, "GB/s": 12.0}})


if __name__ == "__main__":
    unittest.main()
