#!/usr/bin/env python3
"""Limits of the code's shape: usage check_shape.py [ROOT].

No two folders include each other, no type has two definitions (a program that linked both would break the one-definition
rule, and a search finds the wrong one), no folder has more than 24 C++ files and no class more than 15 public functions
(code_shape.py counts), and every lock is one that clang can check (lock_rules.py; tests and all that they share too). Names that exceeded a limit when it was set are listed below with their number, which may fall and
must not rise; a name whose number has fallen is reported, so that the number here can be lowered.
"""
import pathlib
import sys

from code_shape import (MOST_FILES, MOST_FUNCTIONS, TOPS, arrows_between_folders, defined_twice, files_of_folders,
                        mutual, public_functions, sources)
from lock_rules import wrong_locks

FILES = {"controller/step": 25}
FUNCTIONS = {
    "common/comm/cuda/nccl_library.cc: Functions": 16,
    "common/comm/ordered_communicator.h: OrderedCommunicator": 17,
    "common/device/cuda/cuda_api.h: CudaApi": 41,
    "common/device/cuda/cuda_context.h: CudaContext": 30,
    "common/device/cuda/driver_api.h: DriverApi": 42,
    "common/ops/cpu/kernels/kernel_set.h: KernelSet": 24,
    "common/text/jinja/value/value.h: Value": 33,
    "common/weights/layout.h: WeightLayout": 16,
    "controller/partial_rollout/round_runner.h: RoundRunner": 16,
    "controller/run/run_control.h: RunControl": 17,
    "controller/workers/worker_registry.h: WorkerRegistry": 16,
    "rollout_worker/rollout_service.cc: GrpcRolloutService": 16,
    "rollout_worker/weights/weight_updates.h: WeightUpdates": 17,
    "trainer_worker/shard/shard_plan.h: ShardPlan": 16,
    "trainer_worker/trained_weights/lora_weights.h: LoraWeights": 16,
    "trainer_worker/trainer.h: Trainer": 17,
    "trainer_worker/training_session.h: TrainingSession": 16,
}


def beyond(counts, limit, allowed, what):
    """Lines about counts above the limit or, where `allowed` has the name, above the number there."""
    return [f"{name}: {count} {what}, at most {allowed.get(name, limit)}"
            for name, count in sorted(counts.items()) if count > allowed.get(name, limit)]


def fallen(counts, limit, allowed):
    """Lines about numbers of `allowed` that are higher than need be."""
    return [f"{name}: {number} may be lowered to {counts[name]}" if counts[name] > limit
            else f"{name}: its exception is not needed any more"
            for name, number in allowed.items() if name in counts and counts[name] < number]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__ + "/../../..").resolve()
    texts = sources(root, TOPS)
    files = files_of_folders(texts)
    functions = {f"{path}: {name}": count for path, text in texts.items()
                 for name, count in public_functions(text).items()}
    bad = beyond(files, MOST_FILES, FILES, "files") + beyond(functions, MOST_FUNCTIONS, FUNCTIONS, "public functions")
    bad += [f"{a} and {b} include each other" for a, b in mutual(arrows_between_folders(texts))]
    bad += [f"{name} is defined in {' and in '.join(paths)}" for name, paths in defined_twice(texts).items()]
    bad += wrong_locks(sources(root, (*TOPS, "tests")))
    if not texts:
        bad.append(f"{root} has no C++ file in {', '.join(TOPS)}: nothing was checked")
    notes = fallen(files, MOST_FILES, FILES) + fallen(functions, MOST_FUNCTIONS, FUNCTIONS)
    print("\n".join(bad + notes + [f"shape: {len(files)} folders, {len(functions)} classes, {len(bad)} beyond a limit"]))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
