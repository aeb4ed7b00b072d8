#!/usr/bin/env python3
"""Starts verl's example scripts as dry runs: usage verl_scripts.py CHECKOUT [--folder F] [--model DIR] [--data JSONL].

Every script of examples/grpo_trainer in a checkout of verl becomes a configuration by `tandemctl config from-verl`, with
model, data, batch and device counts alone pointed at small local ones, and `tandem-launcher --dry-run` reads it. Prints a
Markdown table of the results, and ends with 1 if a script neither starts nor is refused in one line by name.
docs/guides/verl_scripts.md has the table. CI has no verl, and does not run this; nothing of a script is run.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def overrides(options):
    """Keys that say where model and data are, and how much there is of batch and devices."""
    return [f"actor_rollout_ref.model.path={options.model}", f"data.train_files={options.data}",
            f"data.val_files={options.data}", "data.train_batch_size=8", "data.max_prompt_length=128",
            "data.max_response_length=64", "actor_rollout_ref.actor.ppo_mini_batch_size=8",
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096", "trainer.nnodes=1",
            "trainer.n_gpus_per_node=1", "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
            "actor_rollout_ref.rollout.data_parallel_size=1", "actor_rollout_ref.rollout.expert_parallel_size=1",
            "actor_rollout_ref.actor.ulysses_sequence_parallel_size=1",
            "actor_rollout_ref.ref.ulysses_sequence_parallel_size=1",
            "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=1",
            "actor_rollout_ref.ref.fsdp_config.ulysses_sequence_parallel_size=1",
            "~actor_rollout_ref.model.lora_adapter_path"]


def attempt(script, options, folder):
    """('starts', note) or ('refused', reason) or ('FAILS', output)."""
    binaries = options.bin
    config = pathlib.Path(folder) / "run.yaml"
    # What a user sets before the script; its header asks for it.
    environment = dict(os.environ, HOME=folder, DEVICE="gpu")
    first = ["4"] if "${1:-" in script.read_text() else []  # a number of devices comes before the overrides
    made = subprocess.run([binaries / "tandemctl", "config", "from-verl", script.name, *first, *overrides(options), "-o", config],
                          capture_output=True, text=True, env=environment, cwd=script.parent)
    if made.returncode != 0:
        lines = made.stderr.strip().splitlines()
        return ("refused" if len(lines) == 1 else "FAILS"), " ".join(lines)
    run = subprocess.run([binaries / "tandem-launcher", "--config", config, "--dry-run", f"cluster.run_dir={folder}/run"],
                         capture_output=True, text=True)
    if run.returncode != 0:
        return "FAILS", (run.stderr + run.stdout).strip()[-600:]
    idle = config.read_text().partition("# verl's keys without effect")[2].partition("\n\n")[0].count("\n#   ")
    return "starts", f"{idle} keys without effect"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--folder", default="examples/grpo_trainer")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/SmolLM2-135M-Instruct")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "data/addition/train.jsonl")
    options = parser.parse_args()
    options.checkout, options.bin = options.checkout.resolve(), options.bin.resolve()
    options.model, options.data = options.model.resolve(), options.data.resolve()
    scripts = sorted((options.checkout / options.folder).glob("*.sh"))
    if not scripts:
        parser.error(f"{options.checkout / options.folder} has no scripts")
    counts = {"starts": 0, "refused": 0, "FAILS": 0}
    print("| script | result | |\n|---|---|---|")
    for script in scripts:
        with tempfile.TemporaryDirectory() as folder:
            result, text = attempt(script, options, folder)
        counts[result] += 1
        text = text.replace("|", "\\|").removeprefix("tandemctl: ").replace(f"{script.name}:", "line ")
        print(f"| `{script.name}` | {result} | {text} |", flush=True)
    print(f"\n{len(scripts)} scripts: {counts['starts']} start, {counts['refused']} are refused in one line, "
          f"{counts['FAILS']} fail", file=sys.stderr)
    return 1 if counts["FAILS"] else 0


if __name__ == "__main__":
    sys.exit(main())
