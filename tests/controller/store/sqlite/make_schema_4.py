#!/usr/bin/env python3
"""Writes data/schema_4.db beside it: the run.db of a build whose store had schema version 4.

The tables are those that such a build made, statement by statement; the rows are made up. The file is committed, so that
the tests read what an older build wrote, not what the tests' own build makes of it. Nothing needs to run this again.
"""
import json
import pathlib
import sqlite3

TABLES = """
CREATE TABLE runs (
  run_id TEXT PRIMARY KEY, started_at TEXT, run_dir TEXT, build TEXT, numerics_class TEXT,
  config_yaml TEXT, total_steps INTEGER, first_step INTEGER);
CREATE TABLE steps (
  step INTEGER PRIMARY KEY, version INTEGER, finished_at TEXT, metrics TEXT);
CREATE TABLE phases (
  step INTEGER, ordinal INTEGER, phase TEXT, seconds REAL, peak_bytes INTEGER,
  PRIMARY KEY (step, ordinal));
CREATE TABLE samples (
  step INTEGER, sample_id INTEGER, group_index INTEGER, sample_index INTEGER, prompt TEXT,
  response TEXT, ground_truth TEXT, reward REAL, response_tokens INTEGER,
  finish_reason INTEGER, weight_version INTEGER, advantage REAL, reward_terms TEXT,
  token_offset INTEGER, PRIMARY KEY (step, sample_id));
CREATE TABLE evaluations (
  step INTEGER PRIMARY KEY, version INTEGER, prompts INTEGER, samples INTEGER, seconds REAL,
  metrics TEXT);
ALTER TABLE runs ADD COLUMN kernel_sets TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN memory_plan TEXT NOT NULL DEFAULT '';
ALTER TABLE phases ADD COLUMN workers TEXT NOT NULL DEFAULT '[]';
ALTER TABLE samples ADD COLUMN segments TEXT NOT NULL DEFAULT '[]';
PRAGMA user_version = 4;
"""
MIB = 1 << 20


def ledger(role, peak):
    return {"role": role, "rank": 0,
            "ledger": {"entries": [["weights", 0, 4 * MIB, peak]], "device": 4 * MIB, "device_peak": peak,
                       "memory": 0, "memory_peak": 0, "process": 4 * MIB, "process_peak": peak, "baseline": MIB,
                       "resident": 5 * MIB, "driver_total": 0, "driver_free": 0}}


def main():
    path = pathlib.Path(__file__).parent / "data/schema_4.db"
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    database.executescript(TABLES)
    for start, first in (("100000", 0), ("110000", 2)):  # a start, and the one that went on after it
        stamp = f"2026-01-02T{start[:2]}:00:00Z"
        database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                         (f"tandem/old/20260102-{start}", stamp, "/runs/tandem/old", "tandem 0.1.0", "avx512f",
                          "trainer:\n  experiment_name: old\n", 4, first, "avx512f", ""))
    for step in (1, 2, 3):
        metrics = {"critic/rewards/mean": 0.25 * step, "actor/entropy": 1.5, "response_length/mean": 8.0,
                   "actor/grad_norm": None, "timing_s/step": 2.0}
        database.execute("INSERT INTO steps VALUES (?, ?, ?, ?)",
                         (step, step, f"2026-01-02T10:0{step}:00Z", json.dumps(metrics)))
        for ordinal, phase in enumerate(("generate", "train")):
            database.execute("INSERT INTO phases VALUES (?, ?, ?, ?, ?, ?)",
                             (step, ordinal, phase, 1.0, 8 * MIB, json.dumps([ledger("trainer", 8 * MIB)])))
        for sample in range(4):
            database.execute("INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                             (step, sample, sample // 2, sample % 2, "What is 1 + 2?", "1 + 2 = 3", "3", float(sample % 2),
                              8, 1, step - 1, 0.5, "{}", 0, f"[[10, 8, true, {step - 1}]]"))
    database.execute("INSERT INTO evaluations VALUES (3, 3, 4, 4, 1.5, ?)", (json.dumps({"val/reward/mean": 0.5}),))
    database.commit()
    database.execute("VACUUM")
    database.close()


if __name__ == "__main__":
    main()
