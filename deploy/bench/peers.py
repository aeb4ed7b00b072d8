"""Runs the alternatives to Tandem, in turns with it, on the same model and machine."""
import os
import pathlib
import subprocess

from figures import keep_best, pairs_of
from machine import run


def keep_row(best, row, rate, name):
    """The faster of two rows of one name."""
    if name not in best or row[rate] > best[name][rate]:
        best[name] = row


def gguf_of(model, installs):
    """A bf16 GGUF of the model, made by llama.cpp's converter once; None where it cannot be."""
    if os.environ.get("GGUF"):
        return pathlib.Path(os.environ["GGUF"])
    made = installs / "model-bf16.gguf"
    converters = list(installs.glob("llama/*/vendor/llama.cpp/convert_hf_to_gguf.py"))
    if not made.exists() and converters:
        subprocess.run([str(installs / "venv/bin/python"), str(converters[0]), str(model), "--outtype", "bf16",
                        "--outfile", str(made)], check=False)
    return made if made.exists() else None


def generation(args, own, failed):
    """{"transformers" or "llama.cpp": {"8 sequences": figures}}."""
    found = {"transformers": {}, "llama.cpp": {}}
    installs = pathlib.Path(os.environ["PEERS"])
    gguf = gguf_of(args.model, installs)
    for _ in range(args.runs):
        keep_best(own, run([args.bin / "tandem-generation-bench", args.model], failed))
        for line in run([args.peers / "run.sh", "hf_generate.py", "--dtype", "bf16", "--runs", "1"], failed,
                        {"MODEL": str(args.model)}):
            row = pairs_of(line)
            if "tokens_per_s" in row:
                keep_row(found["transformers"], row, "tokens_per_s", f"{row['sequences']:.0f} sequences")
    if gguf and os.access(installs / "llama/bin/llama-batched-bench", os.X_OK):
        for line in run([args.peers / "llama_bench.sh"], failed, {"GGUF": str(gguf)}):
            row = pairs_of(line)
            if "decode_tokens_per_s" in row:
                keep_row(found["llama.cpp"], row, "decode_tokens_per_s", f"{row['sequences']:.0f} sequences")
    else:
        print(f"llama.cpp is left out: {installs}/llama or a bf16 GGUF (GGUF=FILE) is missing")
    return found


def training(args, failed):
    """{"torch": the best run, "trl": the fastest step}, {} for what failed."""
    found = {"torch": {}, "trl": {}}
    for name, script, key in (("torch", "torch_step.py", "total_s"), ("trl", "trl_step.py", "step_s")):
        for line in run([args.peers / "run.sh", script], failed, {"MODEL": str(args.model)}):
            row = pairs_of(line)
            if key in row and (not found[name] or row[key] < found[name][key]):
                found[name] = row
    return found
