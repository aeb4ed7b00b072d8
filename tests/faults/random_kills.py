"""A random process is killed at a random moment; the run ends with the state of an undisturbed one.

The seed chooses the process and the moment, which is that the run has logged so many lines: a seed that fails is tried
again with --only seed/N. The moment is the same to a few lines, as what happens between two lines differs.
"""
import random
import shutil
import signal
import time

import cell
import processes
import run as runs

VICTIMS = (("controller", 0), ("trainer", 0), ("trainer", 1), ("rollout", 0), ("rollout", 1), ("launcher", 0))
KILLS = (1, 1, 1, 2, 3)  # how many processes one after the other


def lines_logged(run):
    """How many lines the run has logged by now."""
    paths = list(run.folder.glob("launcher-*.log")) + list((run.run_dir / "logs").glob("*.log"))
    return sum(path.read_bytes().count(b"\n") for path in paths)


def kill_at(run, line, victim):
    """Kills the victim when so many lines are logged, or the launcher has ended; whether it did."""
    processes.wait_until(lambda: run.ended() or lines_logged(run) >= line, runs.LIMIT_SECONDS)
    pid = run.find(*victim)
    return pid is not None and processes.send(pid, signal.SIGKILL)


def plan_of(seed, lines):
    """[(line, victim)] of a seed, in order."""
    chance = random.Random(seed)
    return sorted((chance.randrange(1, lines), chance.choice(VICTIMS)) for _ in range(chance.choice(KILLS)))


def try_seed(inputs, folder, seed, lines, expected):
    """A Result, whose `cell` names the seed and what was killed."""
    plan = plan_of(seed, lines)
    name = f"seed/{seed} " + ", ".join(f"{role} {rank} at line {line}" for line, (role, rank) in plan)
    begin = time.monotonic()
    with runs.Run(inputs, folder) as run:
        run.start_rewards()
        run.start()
        for line, victim in plan:
            kill_at(run, line, victim)
            # A launcher takes its processes with it: a user starts it again.
            if run.wait(0 if victim[0] != "launcher" else runs.LIMIT_SECONDS) not in (None, 0):
                processes.wait_until(lambda: len(processes.running(run.folder)) == 1, processes.EVENT_SECONDS)
                run.start()
        wrong = cell.ended_as_undisturbed(run, expected)
        left = run.left_behind()
        if left and not wrong:
            wrong = "left behind: " + "; ".join(left)
    seconds = time.monotonic() - begin
    if wrong:
        return cell.Result(name, "same", "wrong", f"{wrong} (kept: {folder})", seconds)
    shutil.rmtree(folder)
    return cell.Result(name, "same", "as expected", "", seconds)
