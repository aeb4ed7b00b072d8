#!/usr/bin/env python3
"""Partial rollout off and on, at equal seeds, one run after the other: configs/partial_addition.yaml,
whose lengths have a long tail, and the same with equal lengths, where it does not pay. Prints the
tables of docs/guides/partial_rollout.md and writes their figures as JSON. Nothing is asserted.

  ./deploy/build.sh && ./deploy/quickstart.sh        # once: programs, model and data
  deploy/bench/partial.py [--steps 30] [--seeds 1] [--only off,split_2,split_4,groups,equal]
                          [--set KEY=VALUE ...] [--bin DIR] [--out DIR] [--keep]
"""
import argparse
import pathlib
import shutil
import statistics
import sys

from machine import ROOT
from training_runs import begin, curve_table, smoothed, table, text, train, write_figures

CONFIG = ROOT / "configs/partial_addition.yaml"
LENGTH = 256  # its data.max_response_length
# Every response has 64 tokens: nothing but the end tokens of longer ones is missing.
EQUAL = ["rollout.ignore_eos=true", "data.max_response_length=64"]
RUNS = {
    "off": [],
    "split_2": [f"rollout.partial.max_tokens_per_round={LENGTH // 2}"],
    "split_4": [f"rollout.partial.max_tokens_per_round={LENGTH // 4}"],
    "groups": ["rollout.partial.until_groups=16", "rollout.partial.groups_per_round=24"],
    "equal_off": EQUAL,
    "equal_split_2": EQUAL + ["rollout.partial.max_tokens_per_round=32"],
}
REWARD, GENERATE, STEP = "critic/rewards/mean", "timing_s/gen", "timing_s/step"
SAVING = "partial/predicted_saving_s/"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--only", default="off,split_2,split_4,groups,equal")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--keep", action="store_true", help="the run directories, in OUT/partial")
    args = parser.parse_args()
    wanted = args.only.replace("equal", "equal_off,equal_split_2").split(",")
    unknown = [name for name in wanted if name not in RUNS]
    if unknown:
        parser.error(f"--only takes some of off,split_2,split_4,groups,equal, not {', '.join(unknown)}")
    args.names = wanted
    args.seeds = [int(seed) for seed in args.seeds.split(",")]
    return args


def run_of(args, name, seed, failed):
    """The steps of one run; [] where it failed."""
    keys = [*RUNS[name], f"rollout.seed={seed}", f"data.seed={seed}",
            f"trainer.total_training_steps={args.steps}", "trainer.val_before_train=false",
            "data.val_files=[]", "trainer.expected_val_rise=0", *args.set]
    run_dir = args.out / "partial" / f"{name}-{seed}"
    run = train(args.bin, CONFIG, run_dir, keys, failed)
    if run is None:
        return []
    steps = run.steps()
    shutil.rmtree(run_dir / "checkpoints", ignore_errors=True)
    if not args.keep:
        shutil.rmtree(run_dir)
    return steps


def lag(off, on, part):
    """Steps that `on` comes later than `off` to `part` of the way that off's smoothed reward makes from
    its first to its best value; None where one does not come there."""
    off, on = smoothed(off), smoothed(on)
    level = off[0] + part * (max(off) - off[0])
    reach = [next((i for i, reward in enumerate(curve) if reward >= level), None) for curve in (off, on)]
    return None if None in reach else reach[1] - reach[0]


def figures(steps):
    def total(metric):
        return sum(step.get(metric, 0.0) for step in steps)

    def mean(metric):
        values = [step[metric] for step in steps if metric in step]
        return statistics.fmean(values) if values else None

    rewards = [step[REWARD] for step in steps]
    return {"steps": len(steps), "wall_s": total(STEP), "generate_s": total(GENERATE),
            # Where other programs slow the machine down, both are slower: their ratio says more.
            "generate_per_update": total(GENERATE) / total("timing_s/update_actor"),
            "stale_share": mean("partial/stale_tokens_share"),
            "tail_share": mean("partial/tail_share"), "rounds": mean("partial/rounds"),
            "prefilled_again": total("partial/prefilled_again_tokens"),
            "generated_tokens": total("perf/generated_tokens"),
            "partial_ratio": mean("partial/partial_ratio"),
            "span": max((step.get("partial/max_partial_span", 0) for step in steps), default=0),
            "length_p50": mean("response_length/p50"), "length_p99": mean("response_length/p99"),
            "length_max": max((step["response_length/max"] for step in steps), default=0),
            "reward_first_5": statistics.fmean(rewards[:5]), "reward_last_5": statistics.fmean(rewards[-5:]),
            "reward_by_step": rewards,
            "predicted": {name: total(SAVING + name) for name in ("split_2", "split_4")
                          if any(SAVING + name in step for step in steps)}}


def compare(result):
    """Adds what a run is against the one without rounds, of the same task and seed, if that ran."""
    for name, of_seed in result.items():
        base = result.get("equal_off" if name.startswith("equal") else "off", {})
        for seed, run in of_seed.items():
            off = base.get(seed)
            if off is None:
                run["without_base"] = True
            if off is None or off is run:
                continue
            run["saved_s"] = off["generate_s"] - run["generate_s"]
            run["predicted_s"] = off["predicted"].get(name.removeprefix("equal_"))
            run["lag_steps"] = {part: lag(off["reward_by_step"], run["reward_by_step"], part)
                                for part in (0.25, 0.5, 0.75)}


def show(result):
    rows = [["run", "seed", "wall s", "generation s", "per s of training", "tail share", "rounds a step", "prefilled again",
             "of more than one version", "most versions apart", "reward first 5", "last 5",
             "lag at 1/4, 1/2, 3/4", "saved s", "predicted s"]]
    for name, of_seed in result.items():
        for seed, run in of_seed.items():
            lags = run.get("lag_steps")
            none = "not measured" if run.get("without_base") else "-"
            rows.append([name, str(seed), text(run["wall_s"]), text(run["generate_s"]),
                         text(run["generate_per_update"], 2), text(run["tail_share"], 2), text(run["rounds"], 2), text(run["prefilled_again"], 0),
                         text(run["partial_ratio"], 3), text(run["span"], 0), text(run["reward_first_5"], 3),
                         text(run["reward_last_5"], 3),
                         ", ".join(text(value, 0) for value in lags.values()) if lags else none,
                         text(run["saved_s"]) if "saved_s" in run else none,
                         text(run["predicted_s"]) if "predicted_s" in run else none])
    table(rows)
    rows = [["lengths", "seed", "p50", "p99", "max"]]
    for name in ("off", "equal_off"):
        rows += [[name, str(seed), text(run["length_p50"]), text(run["length_p99"]), text(run["length_max"], 0)]
                 for seed, run in result.get(name, {}).items()]
    table(rows)
    curves = {f"{name}, {seed}": run["reward_by_step"] for name, of_seed in result.items()
              for seed, run in of_seed.items() if not name.startswith("equal")}
    if curves:
        curve_table(curves)


def main():
    args = arguments()
    here = begin(args)
    result = {}
    for seed in args.seeds:
        for name in args.names:
            steps = run_of(args, name, seed, here["failed"])
            if steps:
                result.setdefault(name, {})[seed] = figures(steps)
    compare(result)
    show(result)
    return write_figures(args.out, "partial", here, result)


if __name__ == "__main__":
    sys.exit(main())
