"""A dashboard that is started for a test, and runs for it to show."""
import json
import pathlib
import re
import select
import shutil
import sqlite3
import subprocess
import time

START_SECONDS = 60
EVIL = ("<img src=x onerror=\"window.pwned=1\"><script>window.pwned=1</script>"
        "\u202edesrever\u202c \u2066isolated\u2069 \x1b[31mred\x1b[0m nul\x00nul \u200fmark")
ESCAPES = ("⟨U+202E⟩", "⟨U+202C⟩", "⟨U+2066⟩", "⟨U+001B⟩", "⟨U+0000⟩", "⟨U+200F⟩")
EVIL_METRIC = "reward/<img src=x onerror=window.pwned=1>\u202e/mean"


class Dashboard:
    """`tandemctl ui` over folders."""

    def __init__(self, tandemctl, *roots):
        self.process = subprocess.Popen([tandemctl, "ui", "--listen", "127.0.0.1:0", *map(str, roots)],
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        self.address = self._printed_address()
        self.origin = self.address.partition("/#")[0]

    def _printed_address(self):
        end = time.monotonic() + START_SECONDS
        said = ""
        while time.monotonic() < end:
            if not select.select([self.process.stdout], [], [], 0.2)[0]:
                continue
            line = self.process.stdout.readline()
            if not line:
                break
            said += line
            found = re.search(r"http://\S+/#t=\S+", line)
            if found:
                return found[0]
        self.close()
        raise AssertionError(f"the dashboard printed no address, but: {said!r}")

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


def copy_run(run_dir, to):
    """What the dashboard reads of a run directory, without its checkpoints."""
    shutil.copytree(run_dir, to, ignore=shutil.ignore_patterns("checkpoints", "batches", "failed_steps", "run.db*", "*.sock",
                                                             "*.lock"))
    # Not as files: a log beside the database may hold its newest rows.
    with sqlite3.connect(f"file:{pathlib.Path(run_dir, 'run.db').resolve()}?mode=ro", uri=True) as source:
        with sqlite3.connect(to / "run.db") as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
    return to


def forget_tokens(run_dir):
    shutil.rmtree(run_dir / "samples")


def spoil(run_dir):
    """Writes texts into a run that would do harm to a page that took them for HTML. Of the newest step, which is
    returned: the first sample's texts, its reward terms, a metric's name; and an event. Its
    entropy is no number."""
    with sqlite3.connect(run_dir / "run.db") as db:
        (step,) = db.execute("SELECT max(step) FROM samples").fetchone()
        sample, prompt = db.execute("SELECT sample_id, prompt_id FROM samples WHERE step = ? ORDER BY sample_id LIMIT 1",
                                    (step,)).fetchone()
        db.execute("UPDATE samples SET response = ?, reward_terms = ? WHERE step = ? AND sample_id = ?",
                   (EVIL, json.dumps({EVIL: 1.0}), step, sample))
        db.execute("UPDATE prompts SET text = ?, truth = ? WHERE id = ?", (EVIL, EVIL, prompt))
        db.execute("INSERT INTO metric_names (name) VALUES (?)", (EVIL_METRIC,))
        db.execute("INSERT INTO metric_values SELECT m.id, s.step, 0.5 FROM metric_names m, steps s WHERE m.name = ?",
                   (EVIL_METRIC,))
        db.execute("UPDATE metric_values SET value = NULL WHERE step = ? AND name_id = "
                   "(SELECT id FROM metric_names WHERE name = 'actor/entropy')", (step,))
        for number, text in db.execute("SELECT step, metrics FROM steps").fetchall():
            metrics = {**json.loads(text or "{}"), EVIL_METRIC: 0.5} if text else None
            if metrics:
                db.execute("UPDATE steps SET metrics = ? WHERE step = ?", (json.dumps(metrics), number))
        db.execute("INSERT INTO events (time, step, severity, kind, worker, text) "
                   "SELECT max(time) + 1, ?, 'error', 'loss', 'trainer 0', ? FROM events", (step, EVIL))
    return step, sample
