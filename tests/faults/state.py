"""The whole state that a run ended with, and how two of them differ.

State is every file of every checkpoint, byte for byte, and the metrics of every step. What is legitimately
different between two equal runs is left out here, and nothing else:
  - controller.lock in the folder of checkpoints names a process
  - "config" of controller_state.json names the cell's own folder, in place of which CELL stands, and the address
    of the controller, which is a port where a cell takes the network down
  - metrics.jsonl: the time stamp of a line; metrics of time and memory; what was prefilled again, which depends on who
    was lost; what a new process cannot know of the one before it (weights/changed_share), and what counts losses
    (weights/resent_rollouts, weights/probe_tokens)
"""
import hashlib
import json
import re

LEFT_OUT = ("timing", "perf/", "partial/tail_", "partial/predicted_saving_s", "partial/prefilled_tokens",
            "weights/changed_share", "weights/resent_rollouts", "weights/probe_tokens")
LISTEN = re.compile(r'(\n  listen: )"[^"]*"')


def checkpoint_file(path, names):
    """{part: comparable value} of a file of a checkpoint: of the controller's state each key, of others the digest.
    `names`: what stands in place of a run's own names of folders in its config."""
    data = path.read_bytes()
    if path.name == "controller_state.json":
        state = json.loads(data)
        state["config"] = LISTEN.sub(r"\1ADDRESS", state["config"])
        for name, other in names.items():
            state["config"] = state["config"].replace(name, other)
        return {"/" + key: repr(value) for key, value in state.items()}
    return {"": hashlib.sha256(data).hexdigest()}


def steps_of(metrics):
    """{step: metrics that equal runs have in common}, the last line of each step."""
    steps = {}
    for line in metrics.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # a kill in the middle of a line leaves a part of it
        kept = {name: value for name, value in record["data"].items() if not name.startswith(LEFT_OUT)}
        steps[str(record["step"])] = kept
    return steps


def files_state(folder, names):
    """{name: comparable value} of all files below a folder of checkpoints, or of one."""
    state = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / "controller.lock":
            for part, value in checkpoint_file(path, names).items():
                state[f"{path.relative_to(folder)}{part}"] = value
    return state


def last_checkpoint(run_dir):
    """The same of a run's newest checkpoint alone, whatever the run's folder is called."""
    steps = sorted((run_dir / "checkpoints").glob("step_*"), key=lambda path: int(path.name.split("_")[1]))
    return {f"{steps[-1].name}/{name}": value for name, value in files_state(steps[-1], {str(run_dir): "RUN"}).items()} \
        if steps else {}


def state_of(run_dir):
    """{name: comparable value} of a run's folder."""
    checkpoints = files_state(run_dir / "checkpoints", {str(run_dir.parent): "CELL"})
    state = {f"checkpoints/{name}": value for name, value in checkpoints.items()}
    metrics = run_dir / "metrics.jsonl"
    for step, values in steps_of(metrics.read_text(errors="replace") if metrics.exists() else "").items():
        for name, value in values.items():
            state[f"metrics/step {step}/{name}"] = repr(value)
    return state


def differences(expected, actual):
    """Lines that say how `actual` differs; none if it does not."""
    lines = []
    for name in sorted(set(expected) | set(actual)):
        if name not in actual:
            lines.append(f"{name} is missing")
        elif name not in expected:
            lines.append(f"{name} is there, and an undisturbed run has none")
        elif expected[name] != actual[name]:
            shown = f": {actual[name]}, not {expected[name]}" if len(actual[name]) < 60 else ""
            lines.append(f"{name} differs{shown}")
    return lines
