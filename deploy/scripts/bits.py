#!/usr/bin/env python3
"""Digests of the final weights of small runs: a change of the code's shape must not change them.

  deploy/scripts/bits.py [--build DIR] [--isa avx2,best] [--only NAME,...] [--out FILE]
  deploy/scripts/bits.py --against FILE     runs the same, prints what differs, and exits with 1 if anything does

Every run is a launcher with its controller and workers, on configs/tiny.yaml or configs/quickstart.yaml,
the model and the data that deploy/quickstart.sh prepares. A digest is the SHA-256 over all weights of the
last checkpoint, names and bytes, adapters included. Write the table with the programs from before a change
(--build names their folder), then compare with those from after it, on the same machine: "best" is the
instruction set that the programs choose there. FILE is JSON: {"isa/run": digest}.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY, QUICKSTART = "tiny.yaml", "quickstart.yaml"
# High enough that three steps of four samples change many weights.
LEARNS = {"actor.optim.lr": "1.0e-4", "data.max_response_length": "16"}
ADAPTERS = {**LEARNS, "model.lora.rank": "4", "model.lora.alpha": "8", "actor.optim.lr": "0.01"}
ROUNDS = {**LEARNS, "rollout.partial.max_tokens_per_round": "6", "rollout.partial.groups_per_round": "3"}
RUNS = {
    "tiny": (TINY, LEARNS),
    "two_ranks": (TINY, {**LEARNS, "cluster.trainers": "2", "cluster.rollouts": "2"}),
    "lora_merged": (TINY, ADAPTERS),
    "lora_adapters": (TINY, {**ADAPTERS, "model.lora.merge": "false"}),
    "partial": (TINY, ROUNDS),
    "partial_overlap": (TINY, {**ROUNDS, "rollout.partial.overlap": "true",
                               "rollout.free_cache_engine": "false"}),
    "quickstart": (QUICKSTART, {"trainer.total_training_steps": "10", "trainer.val_before_train": "false",
                                "trainer.expected_val_rise": "0"}),
}


def digest_of(checkpoints):
    """SHA-256 over the weights below a folder of checkpoints, which holds the last step's."""
    steps = sorted(checkpoints.glob("step_*"), key=lambda path: int(path.name.split("_")[1]))
    files = sorted(steps[-1].rglob("*.safetensors")) if steps else []
    if not files:
        sys.exit(f"no weights below {checkpoints}")
    total = hashlib.sha256()
    for file in files:
        total.update(str(file.relative_to(steps[-1])).encode())
        with file.open("rb") as data:
            while block := data.read(1 << 22):
                total.update(block)
    return total.hexdigest()


def run(build, name, isa, folder):
    """Trains once in a folder of its own; the digest."""
    config, changes = RUNS[name]
    settings = {"model.path": ROOT / "models" / "SmolLM2-135M-Instruct",
                "data.train_files": ROOT / "data" / "addition" / "train.jsonl",
                "cluster.run_dir": folder / "run", "trainer.test_freq": -1, **changes}
    if config == QUICKSTART:
        settings["data.val_files"] = ROOT / "data" / "addition" / "val.jsonl"
    command = [build / "bin" / "tandem-launcher", "--config", ROOT / "configs" / config]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    environment = dict(os.environ)
    if isa != "best":
        environment["TANDEM_CPU_ISA"] = isa
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{name} with {isa} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return digest_of(folder / "run" / "checkpoints")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--isa", default="avx2,best")
    parser.add_argument("--only", default=",".join(RUNS))
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--against", type=pathlib.Path)
    args = parser.parse_args()
    unknown = set(args.only.split(",")) - set(RUNS)
    if unknown:
        parser.error(f"there is no run {', '.join(sorted(unknown))}; there are {', '.join(RUNS)}")
    if not (ROOT / "data" / "addition" / "val.jsonl").exists():
        parser.error("the model and the data are missing: run deploy/quickstart.sh first")
    before = json.loads(args.against.read_text(encoding="utf-8")) if args.against else {}
    digests, different = {}, []
    for isa in args.isa.split(","):
        for name in args.only.split(","):
            with tempfile.TemporaryDirectory(prefix="tandem-bits-") as folder:
                key = f"{isa}/{name}"
                digests[key] = run(args.build.resolve(), name, isa, pathlib.Path(folder))
            same = before.get(key) == digests[key]
            if args.against and not same:
                different.append(key)
            verdict = "" if not args.against else "  equal" if same else f"  was {before.get(key, 'not run')}"
            print(f"{key:28} {digests[key]}{verdict}", flush=True)
    if args.out:
        args.out.write_text(json.dumps(digests, indent=2) + "\n", encoding="utf-8")
    if different:
        print(f"{len(different)} of {len(digests)} differ: {', '.join(different)}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
