"""One cell of the matrix: a run, a fault, and whether what came of it is what the table says."""
import dataclasses
import pathlib
import shutil
import time

import abilities
import nemesis
import phases
import processes
import run as runs
import state


@dataclasses.dataclass
class Result:
    """`verdict`: as expected, wrong, skipped, or known for a cell that the table calls wrong."""
    cell: str
    expected: str
    verdict: str
    what: str
    seconds: float = 0.0


def fault_spec(cell, marker):
    """TANDEM_FAULT of a cell."""
    role, fault, phase = cell.split("/")
    at, rank, point, nth = phases.place(role, phase)
    action = "exit" if fault == "exit" else "wait"
    return f"{at}:{rank}:{point}:{nth}:{action}:{marker}"


# Where a worker that never registers is what the cell is about, the wait for it is short. Everywhere else a loaded machine may
# take its time, and so may these cells' next start.
NEVER_REGISTERS = {"cluster.register_timeout_seconds": 30}


def first_start(cell):
    """Settings of a cell's first start, over those of every run."""
    role, fault, phase = cell.split("/")
    waits = role in ("trainer", "rollout") and fault in ("stop", "hang") and phase == "start"
    return NEVER_REGISTERS if waits else {}


def disturb(run, cell, marker, pause_seconds):
    """Starts a run and does the fault when its place is reached; what went wrong with that, or ""."""
    role, fault, phase = cell.split("/")
    spec = fault_spec(cell, marker)
    run.start_rewards(spec)
    run.start(spec, first_start(cell))
    processes.wait_until(lambda: run.ended() or marker.exists(), runs.LIMIT_SECONDS)
    if not marker.exists():
        return "the place of the fault was not reached"
    if fault == "exit":
        return ""
    scene = nemesis.Scene(run, role, phases.RANKS[role], marker, pause_seconds)
    if scene.pid is None:
        return f"there is no process of {role} at this point"
    nemesis.NEMESES[fault](scene)
    return "" if scene.touched else "the fault met nothing: the process did nothing that it concerns"


def ended_as_undisturbed(run, expected):
    """What is wrong with a run that has ended, or ""."""
    code = run.wait()
    if code != 0:
        return "the run does not end" if code is None else f"exit code {code}"
    different = state.differences(expected, state.state_of(run.run_dir))
    return f"{len(different)} differences: " + "; ".join(different[:3]) if different else ""


def judge(run, cell, outcome, expected):
    """What is not as expected after the fault, or ""."""
    if outcome.kind == "ends" or (outcome.kind == "may" and run.wait() != 0):
        code = run.wait()
        if code is None or outcome.code not in (None, code):
            return "the run does not end" if code is None else f"exit code {code}, not {outcome.code_text()}"
        processes.wait_until(lambda: not [pid for pid in processes.running(run.folder)
                                          if run.rewards is None or pid != run.rewards.pid],
                             processes.EVENT_SECONDS)
        wrong = "" if outcome.text in run.said() else f'nothing logged "{outcome.text}"'
        if run.rewards is not None and cell.startswith("reward/"):
            run.rewards.kill()
            run.rewards.wait()
        run.start_rewards()
        run.start()
        again = ended_as_undisturbed(run, expected)
        return wrong or (f"started again: {again}" if again else "")
    wrong = ended_as_undisturbed(run, expected)
    if not wrong and outcome.kind == "same" and outcome.text and outcome.text not in run.said():
        return f'nothing logged "{outcome.text}"'
    return wrong


def try_cell(inputs, folder, cell, outcome, expected, pause_seconds=nemesis.PAUSE_SECONDS):
    """Runs a cell in `folder`, which is kept where the cell is not as expected."""
    role, fault, _ = cell.split("/")
    begin = time.monotonic()
    cannot = abilities.unavailable(role, fault)
    if cannot:
        return Result(cell, str(outcome), "skipped", cannot)
    options = {"namespace": fault == "link-down", "small_disk": fault == "disk-full" and role == "controller"}
    if fault in nemesis.RELAYED:
        options["relayed"] = nemesis.relayed(folder / "run", role)
    try:
        with runs.Run(inputs, folder, **options) as run:
            marker = pathlib.Path(folder / "marker")
            wrong = disturb(run, cell, marker, pause_seconds) or judge(run, cell, outcome, expected)
            left = run.left_behind()
            if left and not wrong:
                wrong = "left behind: " + "; ".join(left)
    except abilities.Unavailable as error:
        return Result(cell, str(outcome), "skipped", str(error))
    seconds = time.monotonic() - begin
    if outcome.kind == "wrong":
        return Result(cell, str(outcome), "known", wrong or "as it should be: take the row out", seconds)
    if wrong:
        return Result(cell, str(outcome), "wrong", f"{wrong} (kept: {folder})", seconds)
    shutil.rmtree(folder)
    return Result(cell, str(outcome), "as expected", "", seconds)
