"""Whole GRPO steps through launcher, controller and one pair of workers: seconds per phase and the
peak of the workers' memory (sum of PSS: a page that two processes share counts once)."""
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import threading

from machine import ROOT, die_with_us

COMPUTE = ("generate", "train", "optimize")


def pss_bytes(pid):
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # it has just ended
    return 0


def workers_of(launcher):
    """Ids of the trainer and rollout processes below it."""
    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue
        if int(fields["PPid"]) == launcher and fields["Name"] in ("tandem-trainer", "tandem-rollout"):
            found.append(int(status.parent.name))
    return found


class PeakMemory:
    """Samples the workers' PSS while they run."""

    def __init__(self, launcher):
        self.peak = 0
        self._launcher, self._end = launcher, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self):
        while not self._end.wait(0.25):
            self.peak = max(self.peak, sum(map(pss_bytes, workers_of(self._launcher))))

    def stop(self):
        self._end.set()
        self._thread.join()


def phases_of(run_db):
    """[{phase: seconds}] of every step."""
    with sqlite3.connect(f"file:{run_db}?mode=ro", uri=True) as store:
        steps = {}
        for step, phase, seconds in store.execute("SELECT step, phase, seconds FROM phases WHERE step > 0"):
            phases = steps.setdefault(step, {})
            phases[phase] = phases.get(phase, 0.0) + seconds
        for step, metrics in store.execute(
                "SELECT step, json_extract(metrics, '$.\"timing_s/step\"') FROM steps"):
            steps.setdefault(step, {})["step"] = metrics
    return [steps[step] for step in sorted(steps) if steps[step].get("step")]


def grpo(args, failed, steps=4):
    """Its figures, of the fastest step; {} where it failed."""
    scratch = args.out / "grpo"
    shutil.rmtree(scratch, ignore_errors=True)
    subprocess.run([args.bin / "tandemctl", "data", "make", "addition", scratch / "data"], check=True,
                   stdout=subprocess.DEVNULL)
    command = [args.bin / "tandem-launcher", "--config", ROOT / "configs/bench.yaml",
               "--set", f"model.path={args.model}", "--set", f"data.train_files=[{scratch}/data/train.jsonl]",
               "--set", f"trainer.total_training_steps={steps}", "--set", f"cluster.run_dir={scratch}/run"]
    print(f"--- {' '.join(map(str, command))}", flush=True)
    log = scratch / "launcher.log"
    with open(log, "w") as out, subprocess.Popen(list(map(str, command)), stdout=out, stderr=out,
                                                 preexec_fn=die_with_us) as launcher:
        memory = PeakMemory(launcher.pid)
        try:
            launcher.wait()
        finally:
            launcher.terminate()  # where we were interrupted
            memory.stop()
    if launcher.returncode != 0:
        failed.append(f"GRPO steps ended with {launcher.returncode}, see {log}")
        print(f"error: {failed[-1]}", file=sys.stderr)
        return {}
    best = min(phases_of(scratch / "run/run.db"), key=lambda phases: phases["step"])
    shutil.rmtree(scratch / "run/checkpoints", ignore_errors=True)
    busy = sum(best.get(phase, 0.0) for phase in COMPUTE)
    best["overhead_share"] = (best["step"] - busy) / best["step"]
    best["peak_pss_mib"] = round(memory.peak / 2**20)
    print("    " + "  ".join(f"{name} {value:.3f}" for name, value in best.items()), flush=True)
    return best
