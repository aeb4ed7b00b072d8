#!/usr/bin/env python3
"""Writes data/schema_5.db beside it: the run.db of a build whose store had schema version 5.

The tables are those that such a build made of a file of version 4 (make_schema_4.py), statement by statement; the rows are made
up: a start that ended, and one that was killed after a recovery. The file is committed, so that the tests read what an older
build wrote, not what the tests' own build makes of it. Nothing needs to run this again.
"""
import json
import pathlib
import shutil
import sqlite3

TABLES = """
CREATE TABLE undone_steps (
  undone_by INTEGER, step INTEGER, version INTEGER, finished_at TEXT, metrics TEXT,
  PRIMARY KEY (step, undone_by));
CREATE TABLE undone_phases (
  undone_by INTEGER, step INTEGER, ordinal INTEGER, phase TEXT, seconds REAL,
  peak_bytes INTEGER, workers TEXT, PRIMARY KEY (step, undone_by, ordinal));
CREATE TABLE undone_samples (
  undone_by INTEGER, step INTEGER, sample_id INTEGER, group_index INTEGER,
  sample_index INTEGER, prompt TEXT, response TEXT, ground_truth TEXT, reward REAL,
  response_tokens INTEGER, finish_reason INTEGER, weight_version INTEGER, advantage REAL,
  reward_terms TEXT, token_offset INTEGER, segments TEXT,
  PRIMARY KEY (step, undone_by, sample_id));
CREATE TABLE undone_evaluations (
  undone_by INTEGER, step INTEGER, version INTEGER, prompts INTEGER, samples INTEGER,
  seconds REAL, metrics TEXT, PRIMARY KEY (step, undone_by));
CREATE TABLE marks (name TEXT PRIMARY KEY, value INTEGER);
ALTER TABLE runs ADD COLUMN ended_at TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN outcome TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN error TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET outcome = 'unknown',
  attempt = (SELECT COUNT(*) FROM runs AS earlier WHERE earlier.rowid <= runs.rowid);
ALTER TABLE steps RENAME COLUMN finished_at TO finished_text;
ALTER TABLE steps ADD COLUMN finished_at INTEGER;
UPDATE steps SET finished_at = CAST(strftime('%s', finished_text) AS INTEGER) * 1000000;
ALTER TABLE steps DROP COLUMN finished_text;
ALTER TABLE undone_steps RENAME COLUMN finished_at TO finished_text;
ALTER TABLE undone_steps ADD COLUMN finished_at INTEGER;
ALTER TABLE undone_steps DROP COLUMN finished_text;
CREATE TABLE metric_names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE metric_values (
  name_id INTEGER, step INTEGER, value REAL, PRIMARY KEY (name_id, step)) WITHOUT ROWID;
INSERT INTO metric_names (name)
  SELECT DISTINCT m.key FROM steps, json_each(steps.metrics) AS m WHERE json_valid(steps.metrics);
INSERT INTO metric_values
  SELECT n.id, s.step, m.value FROM steps AS s, json_each(s.metrics) AS m
    JOIN metric_names AS n ON n.name = m.key WHERE json_valid(s.metrics);
CREATE TABLE groups (
  step INTEGER, group_index INTEGER, samples INTEGER, reward_mean REAL, reward_std REAL,
  kind TEXT, PRIMARY KEY (step, group_index)) WITHOUT ROWID;
CREATE TABLE undone_groups (
  undone_by INTEGER, step INTEGER, group_index INTEGER, samples INTEGER, reward_mean REAL,
  reward_std REAL, kind TEXT, PRIMARY KEY (step, undone_by, group_index)) WITHOUT ROWID;
CREATE TABLE events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, time INTEGER, step INTEGER, severity TEXT, kind TEXT,
  worker TEXT, text TEXT);
PRAGMA user_version = 5;
"""
TEN = 1767348000000000  # 2026-01-02T10:00:00Z


def main():
    data = pathlib.Path(__file__).parent / "data"
    path = data / "schema_5.db"
    shutil.copyfile(data / "schema_4.db", path)
    database = sqlite3.connect(path)
    database.executescript(TABLES)
    database.execute("UPDATE runs SET outcome = 'stopped', ended_at = '2026-01-02T10:30:00Z' WHERE attempt = 1")
    database.execute("UPDATE runs SET outcome = '' WHERE attempt = 2")
    for step in (1, 2, 3):
        for group, kind, mean, std in ((0, "mixed", 0.5, 0.7071067811865476), (1, "all_right", 1.0, 0.0)):
            database.execute("INSERT INTO groups VALUES (?, ?, ?, ?, ?, ?)", (step, group, 2, mean, std, kind))
    # Step 4 was made, and lost with its trainers.
    database.execute("INSERT INTO undone_steps (undone_by, step, version, finished_at, metrics) VALUES (2, 4, 4, ?, ?)",
                     (TEN + 240000000, json.dumps({"critic/rewards/mean": 1.0})))
    database.execute("INSERT INTO undone_groups VALUES (2, 4, 0, 2, 0.5, 0.7, 'mixed')")
    database.execute("INSERT INTO undone_samples VALUES (2, 4, 0, 0, 0, 'What is 1 + 2?', '4', '3', 0.0, 1, 1, 3, -0.7, '{}', 0, "
                     "'[[0, 1, true, 3]]')")
    for kind, severity, text in (("start", "info", "start of tandem/old/20260102-110000 after step 2 of 4"),
                                 ("loss", "warning", "trainer 0 is lost"), ("recovery", "info", "back to step 3")):
        database.execute("INSERT INTO events (time, step, severity, kind, worker, text) VALUES (?, 3, ?, ?, '', ?)",
                         (TEN + 250000000, severity, kind, text))
    database.commit()
    database.execute("PRAGMA page_size = 1024")
    database.execute("VACUUM")
    database.close()


if __name__ == "__main__":
    main()
