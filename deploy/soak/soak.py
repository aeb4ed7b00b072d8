#!/usr/bin/env python3
"""A long run with faults at random moments: what it holds must not grow, and its last checkpoint must be that of
the same run without faults, every file of it. See deploy/soak.sh."""
import argparse
import csv
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import micro_model
import picture

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "deploy" / "bench"), str(ROOT / "tests" / "faults")]
import state  # noqa: E402  pylint: disable=wrong-import-position
from machine import commit, die_with_us, machine  # noqa: E402  pylint: disable=wrong-import-position

ROLES = ("launcher", "controller", "trainer", "rollout")
USES = ("resident_mb", "descriptors", "threads")
DISKS = ("run_db_mb", "checkpoints_mb", "samples_mb", "logs_mb", "other_mb")
COLUMNS = ("seconds", "step", "ms_per_step", "kills", "stops", *(f"{role}_{use}" for use in USES for role in ROLES), *DISKS)
# What a process may hold more in the last fifth of the run than in the second: a share, and in addition.
GROWTH = {"resident_mb": (0.05, 4), "descriptors": (0, 4), "threads": (0, 4)}


def config(folder, name, steps, save_every):
    """The smallest step: one pair, one prompt, two samples of two tokens."""
    return {"model.path": folder / "model", "data.train_files": folder / "data" / "train.jsonl",
            "data.max_prompt_length": 112, "data.max_response_length": 2, "data.train_batch_size": 1,
            "rollout.n": 2, "rollout.max_num_seqs": 2, "rollout.max_num_batched_tokens": 128,
            "rollout.gpu_memory_utilization": 0.01, "rollout.ignore_eos": "true",
            "actor.ppo_max_token_len_per_gpu": 128, "actor.optim.lr": 1e-4, "reward.function": "last_integer",
            "reward.terms": '[{name: format, weight: 1, args: {pattern: "[a-m]"}}]',
            "trainer.total_training_steps": steps, "trainer.save_freq": save_every,
            "trainer.val_before_train": "false", "trainer.steps_with_texts": 100, "trainer.logger": "[jsonl]",
            "cluster.run_dir": folder / name, "cluster.compute_threads": 1, "cluster.max_restarts": 1000000,
            "cluster.log_max_mb": 1}


def use_of(pid):
    """{resident_mb, descriptors, threads}; None where it has just ended."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        return {"resident_mb": int(fields["VmRSS"].split()[0]) / 1000,
                "descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(fields["Threads"])}
    except (OSError, KeyError):
        return None


def megabytes(path):
    """On the disk; files that go meanwhile count nothing."""
    total = 0
    for place in [path, *path.rglob("*")] if path.exists() else []:
        try:
            total += place.lstat().st_blocks * 512
        except OSError:
            pass
    return total / 1e6


class Run:
    """A launcher with its controller and pair."""

    def __init__(self, args, name):
        self.run_dir = args.out / name
        keys = args.out / f"{name}.yaml"
        settings = config(args.out, name, args.steps, args.save_every)
        keys.write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
        self._log = open(args.out / f"{name}.log", "w")
        self.process = subprocess.Popen([args.bin / "tandem-launcher", "--config", keys], stdout=self._log,
                                        stderr=self._log, preexec_fn=die_with_us)

    def pids(self):
        """{role: pid} of what runs now."""
        try:
            table = json.loads((self.run_dir / "pids.json").read_text())
            return {"launcher": table["launcher"], **{row["role"]: row["pid"] for row in table["processes"]}}
        except (OSError, ValueError):
            return {}

    def step(self):
        """The newest step on the disk."""
        try:
            with sqlite3.connect(f"file:{self.run_dir}/run.db?mode=ro", uri=True, timeout=5) as store:
                return store.execute("SELECT max(step) FROM steps").fetchone()[0] or 0
        except sqlite3.Error:
            return 0

    def disk(self):
        sizes = {"run_db_mb": sum(megabytes(file) for file in self.run_dir.glob("run.db*")),
                 **{f"{part}_mb": megabytes(self.run_dir / part) for part in ("checkpoints", "samples", "logs")}}
        return {**sizes, "other_mb": max(0.0, megabytes(self.run_dir) - sum(sizes.values()))}

    def finish(self):
        """The state of its last checkpoint, once it has ended; the run's end where it failed."""
        code = self.process.wait()
        self._log.close()
        if code != 0:
            log = pathlib.Path(self._log.name).read_text()
            sys.exit(f"{self.run_dir} ended with {code}:\n{log[-4000:]}")
        found = state.last_checkpoint(self.run_dir)
        if not any(name.endswith(".safetensors") for name in found):
            sys.exit(f"no weights in the last checkpoint of {self.run_dir}")
        return found


class Faults:
    """Kills a process, or stops it for a moment, at random times of a seed."""

    def __init__(self, args):
        self._random = random.Random(args.seed)
        self._mean = args.fault_every
        self.kills = self.stops = 0
        self._due = 0
        self._draw(0)

    def _draw(self, step):
        self._due = step + self._random.expovariate(1 / self._mean)

    def strike(self, run, step):
        if step < self._due:
            return
        self._draw(step)
        time.sleep(self._random.uniform(0, 0.2))  # anywhere in a step
        pid = run.pids().get(self._random.choice(ROLES[1:]))
        stops = self._random.random() < 0.25
        try:
            if pid is None:
                return
            os.kill(pid, signal.SIGSTOP if stops else signal.SIGKILL)
            if stops:
                time.sleep(self._random.uniform(0.1, 2))
                os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return  # it had just ended
        self.stops += stops
        self.kills += not stops


def soak(args):
    """The rows of a run with faults, one every `args.sample_every` steps, its last checkpoint's state, and the faults."""
    run, faults, begin = Run(args, "soak"), Faults(args), time.monotonic()
    rows, last_step, last_time = [], 0, begin
    with open(args.out / "soak.csv", "w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, restval="")
        table.writeheader()
        while run.process.poll() is None:
            time.sleep(0.1)
            step = run.step()
            faults.strike(run, step)
            if step < last_step + args.sample_every:
                continue
            now = time.monotonic()
            row = {"seconds": round(now - begin, 1), "step": step, "kills": faults.kills, "stops": faults.stops,
                   "ms_per_step": round(1000 * (now - last_time) / (step - last_step), 2)}
            for role, pid in run.pids().items():
                row |= {f"{role}_{use}": round(value, 1) for use, value in (use_of(pid) or {}).items()}
            row |= {part: round(size, 2) for part, size in run.disk().items()}
            table.writerow(row)
            file.flush()
            rows.append(row)
            last_step, last_time = step, now
    return rows, run.finish(), faults


def median(rows, column):
    values = sorted(row[column] for row in rows if column in row)
    return values[len(values) // 2] if values else None


def grown(rows):
    """What is larger in the last fifth of the run than in the second, beyond what GROWTH allows."""
    fifth = max(1, len(rows) // 5)
    before, after, found = rows[fifth:2 * fifth], rows[-fifth:], []
    for use, (share, more) in GROWTH.items():
        for role in ROLES:
            old, new = (median(part, f"{role}_{use}") for part in (before, after))
            if old is None or new is None:
                found.append(f"{role}_{use} was not measured")
            elif new > old * (1 + share) + more:
                found.append(f"{role}_{use} grew from {old} to {new}")
    return found + grown_disk(rows, fifth)


def grown_disk(rows, fifth):
    """Checkpoints, samples and logs have a size; run.db and metrics grow by equal steps."""
    found = []
    for part in ("checkpoints_mb", "samples_mb", "logs_mb"):
        old, new = median(rows[fifth:2 * fifth], part), median(rows[-fifth:], part)
        # A log of three programs begins anew at 1 MB, and three older ones are kept.
        if new > 1.5 * old + (12 if part == "logs_mb" else 1):
            found.append(f"{part} grew from {old} to {new}")
    for part in ("run_db_mb", "other_mb"):
        rates = [(piece[-1][part] - piece[0][part]) / max(1, piece[-1]["step"] - piece[0]["step"])
                 for piece in (rows[fifth:len(rows) // 2], rows[len(rows) // 2:]) if len(piece) > 1]
        if len(rates) == 2 and rates[1] > 1.5 * rates[0] + 1e-4:
            found.append(f"{part} grows by {rates[1] * 1e6:.0f} bytes a step, before by {rates[0] * 1e6:.0f}")
    return found


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "soak")
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault-every", type=float, default=500, help="steps between two faults, on average")
    parser.add_argument("--save-every", type=int, default=200, help="steps between two checkpoints")
    parser.add_argument("--sample-every", type=int, help="steps between two rows (default: a 200th of all)")
    args = parser.parse_args()
    args.sample_every = args.sample_every or max(1, args.steps // 200)
    args.bin, args.out = args.bin.resolve(), args.out.resolve()
    return args


def main():
    args = arguments()
    shutil.rmtree(args.out, ignore_errors=True)
    micro_model.write(args.out / "model")
    subprocess.run([args.bin / "tandemctl", "data", "make", "addition", args.out / "data"], check=True,
                   stdout=subprocess.DEVNULL)
    print(f"commit {commit()}\n" + "\n".join(f"{key}: {value}" for key, value in machine().items()), flush=True)
    begin = time.monotonic()
    undisturbed = Run(args, "undisturbed").finish()
    print(f"{args.steps} steps without faults: {1000 * (time.monotonic() - begin) / args.steps:.1f} ms a step", flush=True)
    rows, disturbed, faults = soak(args)
    print(f"{args.steps} steps with {faults.kills} kills and {faults.stops} stops: {rows[-1]['seconds']:.0f} s, "
          f"{len(rows)} rows in {args.out / 'soak.csv'}")
    picture.draw(rows, args.out / "soak.svg", f"{args.steps} steps, {faults.kills} kills, {faults.stops} stops")
    failures = grown(rows) + [f"last checkpoint: {line}" for line in state.differences(undisturbed, disturbed)]
    print("\n".join(failures) or f"nothing grew, and the last checkpoints are equal: {len(disturbed)} files and values")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
