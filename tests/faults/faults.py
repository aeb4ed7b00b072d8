#!/usr/bin/env python3
"""Tries the fault matrix on real runs of a tiny model: every role, fault and phase of tests/faults/table.txt.

  faults.py [--build DIR] [--only PATTERN,...] [--pick] [--jobs N] [--seeds N] [--first-seed N] [--out FILE]
  faults.py --list

--only     cells role/fault/phase that match one of these shell patterns, as trainer/*/save, and "seed" or "seed/17" for
           random kills
--pick     the cells of tests/faults/pick.txt, which every run of the tests tries
--jobs     runs at once (default 2)
--seeds    random kills: a process at a moment of the log that the seed chooses (default 0 with --only and --pick, else 100)
--out      writes the page of results; what was not tried keeps what an earlier page says of it
--list     prints all cells and what is expected of them

A run whose end is not as expected keeps its folder, which the last lines name. Exit code 0: all as expected.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
# pylint: disable=wrong-import-position
import cell as cells  # noqa: E402
import processes  # noqa: E402
import random_kills  # noqa: E402
import results  # noqa: E402
import run as runs  # noqa: E402
import state  # noqa: E402
import table  # noqa: E402


def undisturbed(inputs, folder):
    """The state of a run to which nothing happens, and how many lines it logs."""
    with runs.Run(inputs, folder) as run:
        run.start_rewards()
        run.start()
        code = run.wait()
        left = run.left_behind()
        if code != 0 or left:
            sys.exit(f"an undisturbed run ends with {code}, and leaves {left}:\n{run.said()[-4000:]}")
        found = state.state_of(run.run_dir)
        lines = run.said().count("\n")
    needed = ("model.safetensors", "training_state-00001-of-00002.safetensors", "controller_state.json/data",
              "partial_pool/tokens.bin")
    for name in needed:
        if f"checkpoints/step_3/{name}" not in found:
            sys.exit(f"the last checkpoint of an undisturbed run has no {name}: comparing would show little")
    return found, lines


def picked():
    """The cells of pick.txt."""
    text = (HERE / "pick.txt").read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def chosen_cells(args, outcomes):
    """Names of the cells to try."""
    patterns = picked() if args.pick else args.only.split(",") if args.only else ["*"]
    for pattern in patterns:
        if not pattern.startswith("seed") and not fnmatch.filter(outcomes, pattern):
            sys.exit(f"no cell matches {pattern}: they are role/fault/phase, and --list prints them")
    return [name for name, outcome in outcomes.items()
            if outcome.kind != "none" and any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def chosen_seeds(args):
    """Seeds of the random kills."""
    named = [int(pattern[5:]) for pattern in (args.only or "").split(",") if pattern.startswith("seed/")]
    if named:
        return named
    wanted = args.seeds if args.seeds is not None else 0 if args.only or args.pick else 100
    return list(range(args.first_seed, args.first_seed + wanted))


def tasks_of(args, outcomes, inputs, folder):
    """(name, function that gives a Result) of everything to try."""
    expected, lines = undisturbed(inputs, folder / "undisturbed")
    tasks = []
    for number, name in enumerate(chosen_cells(args, outcomes)):
        tasks.append(lambda name=name, number=number: cells.try_cell(
            inputs, folder / f"c{number}", name, outcomes[name], expected))
    for seed in chosen_seeds(args):
        tasks.append(lambda seed=seed: random_kills.try_seed(inputs, folder / f"s{seed}", seed, lines, expected))
    return tasks


def run_all(tasks, jobs):
    """Results as they come, printed."""
    done = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(task) for task in tasks]
        for future in concurrent.futures.as_completed(waiting):
            result = future.result()
            done.append(result)
            what = f": {result.what}" if result.what else ""
            print(f"[{len(done)}/{len(tasks)}] {result.cell:34} {result.expected}: {result.verdict}{what} "
                  f"({result.seconds:.0f} s)", flush=True)
    return done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parents[1] / "build")
    parser.add_argument("--only")
    parser.add_argument("--pick", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    outcomes = table.cells_of((HERE / "table.txt").read_text(encoding="utf-8"))
    if args.list:
        for name, outcome in outcomes.items():
            print(f"{name:34} {outcome}   {outcome.why}")
        return 0
    begin = time.monotonic()
    # Short: the names of sockets below it have at most 107 characters.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="faults-"))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: (processes.end_below(folder), os._exit(128 + number)))
    inputs = runs.Inputs(folder / "inputs", args.build.resolve())
    done = run_all(tasks_of(args, outcomes, inputs, folder), args.jobs)
    verdicts = collections.Counter(result.verdict for result in done)
    wrong = [result for result in done if result.verdict == "wrong"]
    if args.out:
        before = args.out.read_text(encoding="utf-8") if args.out.exists() else ""
        args.out.write_text(results.markdown(outcomes, done, before), encoding="utf-8")
    print(f"{len(done)} runs in {time.monotonic() - begin:.0f} s: "
          + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    for result in sorted(wrong, key=lambda result: result.cell):
        print(f"wrong: {result.cell}: {result.what}")
    if not wrong:
        shutil.rmtree(folder)
    return 1 if wrong or not done else 0


if __name__ == "__main__":
    sys.exit(main())
