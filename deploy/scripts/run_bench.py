#!/usr/bin/env python3
"""Runs the benchmarks and, on request, the peers; prints tables and writes one JSON. See bench.sh."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCHES = ("ops", "comm", "sync", "generation")
# "linear 576x576 threads 1:  M=1 12  M=8 80 GFLOP/s"
LABELLED = re.compile(r"([A-Za-z][\w=-]*) ([\d.]+)(?![\w.])")
# "all-gather          12.34 GB/s", "memcpy     1.0 ms    2.00 GB/s"
PLAIN = re.compile(r"^(\S.*?)\s{2,}([\d.]+) (GB/s|us|ms)(?:\s+([\d.]+) (GB/s))?$")
GENERATION = ("prefill_s", "decode_s", "decode_tokens_per_s", "tokens_per_s", "cpu_s")


def commit():
    """The commit, with a + where files differ from it."""
    def git(*arguments):
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True,
                              check=False).stdout.strip()
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + (
        "+" if git("status", "--porcelain", "--untracked-files=no") else "")


def machine():
    """What the figures depend on."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*:\s*(.*)$", text, re.M)
    flags = set((re.search(r"^flags\s*:\s*(.*)$", text, re.M) or [""])[0].split())
    isa = [f for f in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16") if f in flags]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cpu": name[1] if name else platform.processor(), "cores": os.cpu_count(),
            "usable_cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory, 1),
            "isa": isa, "forced_isa": os.environ.get("TANDEM_CPU_ISA", ""),
            "kernel": platform.release(), "load_before": round(os.getloadavg()[0], 2)}


def rows_of(line):
    """{name: figures} of one printed line, {} where it holds none."""
    plain = PLAIN.match(line)
    if plain:
        name, value, unit, more, rate = plain.groups()
        return {name: {unit: float(value), **({rate: float(more)} if more else {})}}
    name, colon, rest = line.partition(":")
    values = {key: float(value) for key, value in LABELLED.findall(rest)}
    if colon and values:
        return {name.strip(): values}
    cells = line.split()
    if len(cells) == 1 + len(GENERATION) and re.fullmatch(r"[\d.\s]+", line):
        return {f"{cells[0]} sequences": dict(zip(GENERATION, map(float, cells[1:])))}
    return {}


def run(command, failed, env=None):
    """Its lines, shown while they come; a command that fails is added to `failed`."""
    print(f"--- {' '.join(map(str, command))}", flush=True)
    lines = []
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True,
                          env={**os.environ, **(env or {})}) as process:
        for line in process.stdout:
            print("   ", line, end="", flush=True)
            lines.append(line.rstrip())
    if process.returncode != 0:
        failed.append(f"{command[0]} ended with {process.returncode}")
        print(f"error: {failed[-1]}", file=sys.stderr)
    return lines


def keep_best(best, lines):
    """Of two runs the better figures: the smaller times, the larger rates; of generation, whose
    figures belong together, the faster row."""
    for line in lines:
        times = re.search(r"\b(us|ms)\b", line) is not None
        for name, figures in rows_of(line).items():
            old = best.get(name)
            if old is None:
                best[name] = figures
            elif "tokens_per_s" in figures:
                best[name] = max(old, figures, key=lambda row: row["tokens_per_s"])
            else:
                best[name] = {key: (min if times and key != "GB/s" else max)(old[key], value)
                              for key, value in figures.items()}


def keep_peer(best, peer, lines, size, rate):
    """Tokens per second of `peer` by number of sequences, the best of its runs."""
    for line in lines:
        cells = line.split()
        if size in cells and rate in cells:
            name = f"{cells[cells.index(size) + 1]} sequences"
            value = float(cells[cells.index(rate) + 1])
            best.setdefault(name, {})
            best[name][peer] = max(value, best[name].get(peer, 0.0))


def gguf_of(model, scripts_out):
    """A bf16 GGUF of the model, made by llama.cpp's converter once; None where it cannot be."""
    made = pathlib.Path(scripts_out) / "model-bf16.gguf"
    converters = list(pathlib.Path(scripts_out).glob("llama/*/vendor/llama.cpp/convert_hf_to_gguf.py"))
    if not made.exists() and converters:
        python = pathlib.Path(scripts_out) / "venv/bin/python"
        subprocess.run([str(python), str(converters[0]), str(model), "--outtype", "bf16",
                        "--outfile", str(made)], check=False)
    return made if made.exists() else None


def peers(args, own, failed):
    """Runs them in turns with the generator; prints the ratios."""
    best, training = {}, []
    env = {"MODEL": str(args.model)}
    for _ in range(args.runs):
        keep_best(own, run([args.bin / "tandem-generation-bench", args.model], failed))
        lines = run([args.peers / "run.sh", "hf_generate.py", "--dtype", "bf16", "--runs", "1"],
                    failed, env)
        keep_peer(best, "transformers", lines, "sequences", "tokens_per_s")
    installs = os.environ["PEERS"]
    gguf = gguf_of(args.model, installs)
    if gguf and os.access(pathlib.Path(installs) / "llama/bin/llama-batched-bench", os.X_OK):
        lines = run([args.peers / "llama_bench.sh"], failed, {"GGUF": str(gguf)})
        keep_peer(best, "llama.cpp", lines, "sequences", "generated_with_prefill")
    else:
        print(f"llama.cpp is left out: {installs}/llama or a bf16 GGUF is missing")
    for script in ("trl_step.py", "torch_step.py"):
        training += run([args.peers / "run.sh", script], failed, env)
    print("\ngenerated tokens/s, prefill included, and Tandem ÷ peer")
    for name, figures in best.items():
        tandem = own.get(name, {}).get("tokens_per_s", 0.0)
        line = f"{name:<14} tandem {tandem:8.1f}"
        for peer, value in figures.items():
            line += f"   {peer} {value:8.1f} ({tandem / value:.2f}x)"
        print(line)
    return {"generation_tokens_per_s": best, "training": training}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--peers", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(BENCHES))
    args = parser.parse_args()
    names = args.only.split(",")
    if not set(names) <= set(BENCHES) or args.runs < 1:
        raise SystemExit(f"error: --only takes {', '.join(BENCHES)}; --runs at least 1")
    result = {"commit": commit(), "started": datetime.datetime.now().astimezone().isoformat(),
              "machine": machine(), "runs": args.runs, "benches": {}, "failed": []}
    failed = result["failed"]
    print(f"commit {result['commit']}\n" + "\n".join(f"{k}: {v}" for k, v in result["machine"].items()))
    for name in names:
        best = result["benches"].setdefault(name, {})
        command = [args.bin / f"tandem-{name}-bench"]
        if name == "generation":
            if not (args.model / "config.json").exists():
                print(f"generation is left out: no model in {args.model} (run deploy/fetch_model.sh)")
                continue
            command.append(args.model)
        for _ in range(args.runs):
            keep_best(best, run(command, failed))
    if args.peers:
        result["peers"] = peers(args, result["benches"].setdefault("generation", {}), failed)
    args.out.mkdir(parents=True, exist_ok=True)
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = args.out / f"{stamp}-{result['commit'].rstrip('+')}.json"
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(f"written: {path}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
