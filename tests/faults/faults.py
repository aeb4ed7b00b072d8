#!/usr/bin/env python3
"""Tries the fault matrix on real runs of a tiny model: every role, fault and phase of tests/faults/table.txt.

  faults.py [--build DIR] [--only PATTERN,...] [--pick] [--jobs N] [--seeds N] [--first-seed N] [--pause-seconds N]
            [--out FILE]
  faults.py --list

--only     cells role/fault/phase that match one of these shell patterns, as trainer/*/save, and "seed" or "seed/17" for
           random kills
--pick     the cells of tests/faults/pick.txt, which every run of the tests tries
--jobs     runs at once (default 2)
--seeds    random kills: a process at a moment of the log that the seed chooses (default 0 with --only and --pick, else 100)
--pause-seconds  of the cells of `pause`, those of the reward service excepted (default 6 with --only and --pick, else 30)
--out      writes the page of results; what was not tried keeps what an earlier page says of it
--list     prints all cells and what is expected of them

A run whose end is not as expected keeps its folder, which the last lines name; so does one in which the driver itself
failed, which is a cell that went wrong. What the machine cannot make is skipped and told, in the summary of .ci/run, too
(TANDEM_CI_NOTES). Ctrl-C and SIGTERM leave nothing behind; what a killed driver has left, the next one removes.
Exit code 0: all as expected.
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
import traceback

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "deploy/bench"), str(ROOT / "deploy/scripts")]
# pylint: disable=wrong-import-position
import cell as cells  # noqa: E402
import leftovers  # noqa: E402
import nemesis  # noqa: E402
import processes  # noqa: E402
import random_kills  # noqa: E402
import results  # noqa: E402
import run as runs  # noqa: E402
import state  # noqa: E402
import table  # noqa: E402
from ci_turns import note  # noqa: E402
from machine import commit, machine  # noqa: E402


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
    wanted = args.seeds if args.seeds is not None else 100 if args.whole else 0
    return list(range(args.first_seed, args.first_seed + wanted))


def tasks_of(args, outcomes, inputs, folder):
    """(name, function that gives a Result) of everything to try."""
    expected, lines = undisturbed(inputs, folder / "undisturbed")
    tasks = []
    for number, name in enumerate(chosen_cells(args, outcomes)):
        tasks.append((name, lambda name=name, number=number: cells.try_cell(
            inputs, folder / f"c{number}", name, outcomes[name], expected, args.pause_seconds)))
    for seed in chosen_seeds(args):
        tasks.append((f"seed/{seed}", lambda seed=seed: random_kills.try_seed(
            inputs, folder / f"s{seed}", seed, lines, expected)))
    return tasks


def guarded(name, task):
    """The task's Result. A driver that fails costs this cell, not what was found of the others."""
    begin = time.monotonic()
    try:
        return task()
    except Exception as error:  # pylint: disable=broad-exception-caught
        traceback.print_exc()
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = f"the driver failed: {type(error).__name__}: {error} ({pathlib.Path(place.filename).name}:{place.lineno})"
        return cells.Result(name, "", "wrong", what, time.monotonic() - begin)


def run_all(tasks, jobs):
    """Results as they come, printed."""
    done = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(guarded, *task) for task in tasks]
        for future in concurrent.futures.as_completed(waiting):
            result = future.result()
            done.append(result)
            what = f": {result.what}" if result.what else ""
            print(f"[{len(done)}/{len(tasks)}] {result.cell:34} {result.expected}: {result.verdict}{what} "
                  f"({result.seconds:.0f} s)", flush=True)
    return done


def tell_skipped(done):
    """Each reason once, for the summary of .ci/run as well."""
    by_reason = collections.defaultdict(list)
    for result in done:
        if result.verdict == "skipped":
            by_reason[result.what].append(result.cell)
    for why, names in sorted(by_reason.items()):
        note(f"faults: {len(names)} of {len(done)} not tried, as {why}: {', '.join(sorted(names))}")


def place():
    """Commit and machine, as they are when the driver starts."""
    here = machine()
    return (f"commit {commit()}, {here['cpu']}, {here['usable_cores']} cores, {here['memory_gib']} GiB, kernel {here['kernel']}, "
            f"load {here['load_before']:.0f}")


def end_by(folder, driver):
    """A handler of signals that end the driver: nothing of it stays."""
    def end(number, _):
        leftovers.end_below(folder, driver)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(128 + number)
    return end


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--only")
    parser.add_argument("--pick", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--pause-seconds", type=float)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    args.whole = not (args.only or args.pick)
    if args.pause_seconds is None:
        args.pause_seconds = nemesis.LONG_PAUSE_SECONDS if args.whole else nemesis.PAUSE_SECONDS
    return args


def main():
    args = parse_arguments()
    outcomes = table.cells_of((HERE / "table.txt").read_text(encoding="utf-8"))
    if args.list:
        for name, outcome in outcomes.items():
            print(f"{name:34} {outcome}   {outcome.why}")
        return 0
    begin, driver, where = time.monotonic(), processes.driver(), place()
    for pid, _ in leftovers.clean_up_after_the_dead():
        print(f"removed what the driver {pid}, which is dead, had left")
    # Short: the names of sockets below it have at most 107 characters.
    folder = pathlib.Path(tempfile.mkdtemp(prefix=leftovers.folder_prefix(driver)))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_by(folder, driver))
    try:
        inputs = runs.Inputs(folder / "inputs", args.build.resolve())
        done = run_all(tasks_of(args, outcomes, inputs, folder), args.jobs)
    finally:
        leftovers.end_below(folder, driver)
        (folder / leftovers.KEPT).touch()
    verdicts = collections.Counter(result.verdict for result in done)
    wrong = [result for result in done if result.verdict == "wrong"]
    seconds = time.monotonic() - begin
    if args.out:
        before = args.out.read_text(encoding="utf-8") if args.out.exists() else ""
        about = f"{where}; {len(done)} runs, {args.jobs} at once, in {seconds:.0f} s; pauses of {args.pause_seconds:g} s"
        page = results.markdown(outcomes, done, before, about, args.whole)
        args.out.write_text(page, encoding="utf-8")
    print(f"{len(done)} runs in {seconds:.0f} s: "
          + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    tell_skipped(done)
    for result in sorted(wrong, key=lambda result: result.cell):
        print(f"wrong: {result.cell}: {result.what}")
    if not wrong:
        shutil.rmtree(folder)
    return 1 if wrong or not done else 0


if __name__ == "__main__":
    sys.exit(main())
