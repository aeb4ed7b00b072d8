#!/usr/bin/env python3
"""Runs the benchmarks and, on request, the peers; prints tables and writes one JSON. See bench.sh."""
import argparse
import datetime
import json
import pathlib
import signal
import sys

import peers
import ratios
from figures import keep_best
from grpo import grpo
from machine import commit, machine, run

BENCHES = ("ops", "comm", "sync", "generation", "train", "grpo", "load")
NEED_MODEL = ("generation", "train", "grpo")
NO_PEERS = {"generation": {"transformers": {}, "llama.cpp": {}}, "training": {"torch": {}, "trl": {}}}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--peers", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(BENCHES))
    args = parser.parse_args()
    args.names = args.only.split(",")
    return args


def end_at_once(number, _frame):
    """Also where a terminal or a supervisor asks for it: children end with us (machine.die_with_us)."""
    print("error: interrupted; no figures are written", file=sys.stderr)
    raise SystemExit(128 + number)


# Kernel sets of class seq on a machine with AMX, and oneDNN without it, as on machines that have
# none: Intel's run avx512f there, whose products are faster, AMD's avx512bf16 (common/ops/cpu/kernels/isa.cc).
SEQ = {name: {"TANDEM_CPU_ISA": name, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
       for name in ("avx512f", "avx512bf16")}


def own_figures(args, failed, here):
    """{benchmark: {row: figures}}, the best of the runs."""
    benches = {}
    has_two_classes = "amx_bf16" in here["isa"] and not here["forced_isa"]
    for name in args.names:
        if name in NEED_MODEL and not (args.model / "config.json").exists():
            print(f"{name} is left out: no model in {args.model} (run deploy/fetch_model.sh)")
            continue
        best = benches.setdefault(name, {})
        if name == "grpo":
            best["step"] = grpo(args, failed)
            continue
        command = [args.bin / f"tandem-{name}-bench"] + ([args.model] if name in NEED_MODEL else [])
        # Some repeat their steps themselves.
        runs = args.runs if name not in ("train", "load") else 1
        for _ in range(runs):
            keep_best(best, run(command, failed, SEQ.get(here["forced_isa"])))
            if name == "ops" and has_two_classes:
                for variables in SEQ.values():
                    keep_best(best, run(command + ["linear"], failed, variables))
            if name == "generation":
                scaling(command, best.setdefault("scaling", {}), failed)
    return benches


def scaling(command, best, failed):
    """{"2 threads": {"64 sequences": figures}}."""
    for threads in ("1", "2"):
        keep_best(best.setdefault(f"{threads} threads", {}),
                  run(command + ["--threads", threads, "--sequences", "64", "256"], failed))


def show_ratios(benches, result):
    table = ratios.Table()
    ratios.ops(table, benches.get("ops", {}))
    step = benches.get("grpo", {}).get("step")
    # Without --peers no peer ran, and the rows say so.
    others = result.get("peers", NO_PEERS)
    ratios.generation(table, benches.get("generation", {}), others["generation"])
    ratios.training(table, benches.get("train", {}), step, others["training"])
    ratios.scaling(table, benches.get("generation", {}).get("scaling", {}))
    ratios.overhead(table, step)
    table.show()
    return table.rows


def main():
    args = arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end_at_once)
    result = {"commit": commit(), "started": datetime.datetime.now().astimezone().isoformat(),
              "machine": machine(), "runs": args.runs, "failed": []}
    failed = result["failed"]
    print(f"commit {result['commit']}\n" + "\n".join(f"{k}: {v}" for k, v in result["machine"].items()))
    benches = result["benches"] = own_figures(args, failed, result["machine"])
    if args.peers:
        result["peers"] = dict(NO_PEERS)
        if "generation" in benches:
            result["peers"]["generation"] = peers.generation(args, benches["generation"], failed)
        if "train" in benches or "grpo" in benches:
            result["peers"]["training"] = peers.training(args, failed)
    result["ratios"] = show_ratios(benches, result)
    args.out.mkdir(parents=True, exist_ok=True)
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = args.out / f"{stamp}-{result['commit'].rstrip('+')}.json"
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(f"written: {path}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
