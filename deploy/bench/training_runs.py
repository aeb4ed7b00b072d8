"""Whole training runs through the launcher, one after the other, and figures from their stores."""
import datetime
import json
import shutil
import signal
import sqlite3
import subprocess
import sys

from machine import ROOT, commit, die_with_us, machine


def end_at_once(number, _frame):
    print("error: interrupted; no figures are written", file=sys.stderr)
    raise SystemExit(128 + number)


def end_on_signals():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end_at_once)


class Run:
    """A run that ended well, for as long as its directory lasts."""

    def __init__(self, run_dir):
        self.run_dir = run_dir

    def _rows(self, query):
        with sqlite3.connect(f"file:{self.run_dir / 'run.db'}?mode=ro", uri=True) as store:
            return store.execute(query).fetchall()

    def steps(self):
        """[{metric: value}] of every step, in order."""
        return [json.loads(metrics) for (metrics,) in
                self._rows("SELECT metrics FROM steps WHERE step > 0 ORDER BY step")]

    def evaluations(self):
        """[{metric: value}] of the validations, in order."""
        return [json.loads(metrics) for (metrics,) in
                self._rows("SELECT metrics FROM evaluations ORDER BY step")]

    def phases(self, phase):
        """[(seconds, peak bytes of a pair, workers)] of a phase, in order."""
        return [(seconds, peak, json.loads(workers)) for seconds, peak, workers in
                self._rows("SELECT seconds, peak_bytes, workers FROM phases "
                           f"WHERE phase = '{phase}' ORDER BY step, ordinal")]


def train(binaries, config, run_dir, keys, failed):
    """The Run, or None where it failed: then `failed` has a line more."""
    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.mkdir(parents=True)
    command = [str(binaries / "tandem-launcher"), "--config", str(config)]
    for key in [*keys, f"cluster.run_dir={run_dir}"]:
        command += ["--set", key]
    print(f"--- {' '.join(command)}", flush=True)
    log = run_dir / "launcher.log"
    with open(log, "w") as out, subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out,
                                                 preexec_fn=die_with_us) as launcher:
        try:
            launcher.wait()
        finally:
            launcher.terminate()  # where we were interrupted
    if launcher.returncode == 0:
        return Run(run_dir)
    failed.append(f"{run_dir.name} ended with {launcher.returncode}, see {log}")
    print(f"error: {failed[-1]}", file=sys.stderr)
    return None


def smoothed(values, window=5):
    """The mean over up to `window` values around each."""
    half = window // 2
    around = [values[max(0, i - half):i + half + 1] for i in range(len(values))]
    return [sum(some) / len(some) for some in around]


def text(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print("\n" + "\n".join(lines))


def curve_table(curves):
    """{name: [reward of a step]} side by side, a row a step."""
    longest = max(map(len, curves.values()))
    table([["reward of step", *curves]] +
          [[str(step + 1), *(text(curve[step] if step < len(curve) else None, 3)
                             for curve in curves.values())] for step in range(longest)])


def begin(args):
    """Prints commit and machine, which stand before the figures in the file as well."""
    end_on_signals()
    here = {"commit": commit(), "started": datetime.datetime.now().astimezone().isoformat(),
            "machine": machine(), "steps": args.steps, "set": args.set, "failed": []}
    print(f"commit {here['commit']}\n" + "\n".join(f"{k}: {v}" for k, v in here["machine"].items()))
    return here


def write_figures(out, name, here, result):
    """The exit code: 1 if a run failed."""
    out.mkdir(parents=True, exist_ok=True)
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = out / f"{name}-{stamp}-{here['commit'].rstrip('+')}.json"
    path.write_text(json.dumps({**here, "runs": result}, indent=1, ensure_ascii=False) + "\n")
    print(f"\nwritten: {path}")
    return 1 if here["failed"] else 0
