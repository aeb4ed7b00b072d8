#!/usr/bin/env python3
"""All weights against LoRA of rank 8 and 32, merged and beside the base, on the quickstart's task at
equal seeds, one run after the other. Prints the tables of docs/guides/lora.md and writes their figures as
JSON. Nothing is asserted.

  ./deploy/build.sh && ./deploy/quickstart.sh        # once: programs, model and data
  deploy/bench/lora.py [--steps 50] [--seeds 1] [--only full,r8,r32,r8_beside,r32_beside]
                       [--set KEY=VALUE ...] [--bin DIR] [--out DIR] [--keep]
"""
import argparse
import pathlib
import shutil
import statistics
import sys

from machine import ROOT
from training_runs import begin, curve_table, table, text, train, write_figures

FULL, LORA = ROOT / "configs/quickstart.yaml", ROOT / "configs/quickstart_lora.yaml"
RANK_8 = ["model.lora.rank=8", "model.lora.alpha=16"]
RANK_32 = ["model.lora.rank=32", "model.lora.alpha=64"]
BESIDE = ["model.lora.merge=false"]
RUNS = {
    "full": (FULL, []),
    "r8": (LORA, RANK_8),
    "r32": (LORA, RANK_32),
    "r8_beside": (LORA, RANK_8 + BESIDE),
    "r32_beside": (LORA, RANK_32 + BESIDE),
}
REWARD = "critic/rewards/mean"
SETTLED = 2  # the first steps pay for what is made once


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--only", default=",".join(RUNS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--keep", action="store_true", help="the run directories, in OUT/lora")
    args = parser.parse_args()
    if args.steps <= SETTLED:
        parser.error(f"--steps takes {SETTLED + 1} or more: the first {SETTLED} are not counted")
    args.names = args.only.split(",")
    unknown = [name for name in args.names if name not in RUNS]
    if unknown:
        parser.error(f"--only takes some of {','.join(RUNS)}, not {', '.join(unknown)}")
    args.seeds = [int(seed) for seed in args.seeds.split(",")]
    return args


def held_bytes(run):
    """{role: {tag: bytes}} that pair 0 holds in its last training pass."""
    held = {}
    for worker in run.phases("train")[-1][2]:
        if worker["rank"] == 0:
            held[worker["role"]] = {tag: now for tag, _host, now, *_ in worker["ledger"]["entries"]}
    return held


def checkpoint_bytes(run_dir):
    """{kind: bytes} of the newest checkpoint."""
    newest = max((run_dir / "checkpoints").glob("step_*"), key=lambda step: int(step.name[5:]))
    kinds = {"training state": "training_state-*", "adapters": "lora_adapter/*", "model": "model*.safetensors"}
    return {kind: sum(file.stat().st_size for file in newest.glob(pattern)) for kind, pattern in kinds.items()}


def figures(run):
    steps = run.steps()

    def median(metric):
        values = [step[metric] for step in steps[SETTLED:] if metric in step]
        return statistics.median(values) if values else None

    rewards = [step[REWARD] for step in steps]
    evaluations = run.evaluations()
    return {"steps": len(steps), "wall_s": sum(step["timing_s/step"] for step in steps),
            "generation_tokens_per_second": median("perf/generation_tokens_per_second"),
            "update_s": median("timing_s/update_actor"), "sync_s": median("timing_s/update_weights"),
            "identical": min(step["training/rollout_log_probs_identical"] for step in steps),
            "peak_bytes": max(peak for phase in ("train", "optimize", "sync", "generate")
                              for _seconds, peak, _workers in run.phases(phase)),
            "held_bytes": held_bytes(run), "checkpoint_bytes": checkpoint_bytes(run.run_dir),
            "reward_first_5": statistics.fmean(rewards[:5]), "reward_last_5": statistics.fmean(rewards[-5:]),
            "reward_by_step": rewards, "evaluations": evaluations}


def run_of(args, name, seed, failed):
    """Figures of one run; None where it failed."""
    config, keys = RUNS[name]
    run_dir = args.out / "lora" / f"{name}-{seed}"
    keys = [*keys, f"rollout.seed={seed}", f"data.seed={seed}", f"trainer.seed={seed}",
            f"trainer.total_training_steps={args.steps}", "trainer.expected_val_rise=0", *args.set]
    run = train(args.bin, config, run_dir, keys, failed)
    if run is None:
        return None
    found = figures(run)
    if args.keep:
        shutil.rmtree(run_dir / "checkpoints")
    else:
        shutil.rmtree(run_dir)
    return found


def held_out(run):
    """The held-out reward before and after, with the half-width of its 95 % interval."""
    ends = run["evaluations"][:1] + run["evaluations"][-1:]
    return ", ".join(f"{one['val/reward/mean']:.2f} ± {one['val/reward/ci95']:.2f}" for one in ends) or "-"


def mib(value):
    return "-" if value is None else f"{value / 2**20:.0f}"


def show(result):
    rows = [["run", "seed", "wall s", "generation tokens/s", "update s", "sync ms", "identical", "reward first 5",
             "last 5", "held out before, after"]]
    for name, of_seed in result.items():
        for seed, run in of_seed.items():
            rows.append([name, str(seed), text(run["wall_s"]), text(run["generation_tokens_per_second"], 0),
                         text(run["update_s"], 2), text(run["sync_s"] * 1000, 1), text(run["identical"], 0),
                         text(run["reward_first_5"], 3), text(run["reward_last_5"], 3), held_out(run)])
    table(rows)
    first = {name: next(iter(of_seed.values())) for name, of_seed in result.items()}
    tags = sorted({(role, tag) for run in first.values() for role, held in run["held_bytes"].items() for tag in held})
    rows = [["MiB", *first]]
    rows += [[f"{role} {tag}", *(mib(run["held_bytes"][role].get(tag)) for run in first.values())]
             for role, tag in tags]
    rows += [["peak of a pair", *(mib(run["peak_bytes"]) for run in first.values())]]
    rows += [[f"checkpoint, {kind}", *(mib(run["checkpoint_bytes"][kind]) for run in first.values())]
             for kind in ("training state", "adapters", "model")]
    table(rows)
    curve_table({f"{name}, {seed}": run["reward_by_step"] for name, of_seed in result.items()
                 for seed, run in of_seed.items()})


def main():
    args = arguments()
    here = begin(args)
    result = {}
    for seed in args.seeds:
        for name in args.names:
            found = run_of(args, name, seed, here["failed"])
            if found:
                result.setdefault(name, {})[seed] = found
    if result:
        show(result)
    return write_figures(args.out, "lora", here, result)


if __name__ == "__main__":
    sys.exit(main())
