#!/usr/bin/env python3
"""Writes lora.json and lora/: adapters for the models of make_models.py, merged by numpy.

Products are fused multiply-adds in ascending rank, as float64 sums of exact products rounded to
float32; the forward is make_models.py's, in float64.
Run in this folder with numpy installed, after make_models.py: python3 make_lora.py
"""
import fnmatch
import json
import pathlib
import struct

import numpy as np

import make_models

LINEARS = ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")


def bf16(values):
    """float32 values, rounded to bfloat16."""
    return (make_models.to_bfloat16(values).astype(np.uint32) << 16).view(np.float32)


def read_safetensors(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    result = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw[begin:end], np.uint16).astype(np.uint32) << 16).view(
                np.float32)
        else:
            values = np.frombuffer(raw[begin:end], np.float32)
        result[name] = values.reshape(entry["shape"])
    return result


def write_safetensors(path, tensors, dtype):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name in sorted(tensors):
        values = tensors[name].astype(np.float32)
        piece = (make_models.to_bfloat16(values) if dtype == "bfloat16" else values).tobytes()
        header[name] = {"dtype": "BF16" if dtype == "bfloat16" else "F32",
                        "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def product(a, b, scaling):
    total = np.zeros((b.shape[0], a.shape[1]), np.float32)
    for k in range(a.shape[0]):
        exact = b[:, k:k + 1].astype(np.float64) * a[k:k + 1].astype(np.float64)
        total = (exact + total).astype(np.float32)
    return total * np.float32(scaling)


def forward(config, weights, ids):
    return make_models.forward(config, {k: v.astype(np.float64) for k, v in weights.items()}, ids)


def state_keys(weights, tied, modules):
    keys = [] if not tied else ["base_model.model.lm_head.weight"]
    for name in weights:
        module = name.removesuffix(".weight")
        if module not in modules:
            keys.append("base_model.model." + name)
            continue
        keys += [f"base_model.model.{module}.{part}.weight"
                 for part in ("base_layer", "lora_A.default", "lora_B.default")]
    return sorted(keys)


class Case:
    """One adapter and what it makes of its base."""

    def __init__(self, number, model, config, rng, **options):
        self.config, self.options = config, options
        self.options.update(base="models/" + model, dir=f"lora/case{number}",
                            scaling=options["lora_alpha"] / options["r"])
        self.id = f"own/{number}"
        cast = bf16 if options["base_dtype"] == "bfloat16" else (lambda values: values)
        stored = read_safetensors(pathlib.Path("models") / model / "model.safetensors")
        self.weights = {k: cast(v) for k, v in stored.items()}
        self.round = cast
        self.modules = self.chosen()
        self.adapter = {}
        narrow = bf16 if options["adapter_dtype"] == "bfloat16" else (lambda values: values)
        for module in self.modules:
            out, width = self.weights[module + ".weight"].shape
            for name, shape in (("lora_A", (options["r"], width)), ("lora_B", (out, options["r"]))):
                values = (0.3 * rng.standard_normal(shape)).astype(np.float32)
                self.adapter[f"base_model.model.{module}.{name}.weight"] = narrow(values)
        self.ids = rng.integers(3, config["vocab_size"], 7)

    def chosen(self):
        """Modules by shell patterns that say what target and exclude say."""
        take, leave = self.options.pop("take"), self.options.pop("leave", [])
        names = [name.removesuffix(".weight") for name in self.weights if "proj" in name]
        return [name for name in names if any(fnmatch.fnmatch(name, p) for p in take)
                and not any(fnmatch.fnmatch(name, p) for p in leave)]

    def delta(self, module):
        a, b = (self.adapter[f"base_model.model.{module}.lora_{m}.weight"] for m in "AB")
        delta = product(a, b, self.options["scaling"])
        return bf16(delta) if self.options["adapter_dtype"] == "bfloat16" else delta

    def write(self):
        folder = pathlib.Path(self.options["dir"])
        folder.mkdir(parents=True, exist_ok=True)
        config = {"peft_type": "LORA", "r": self.options["r"],
                  "lora_alpha": self.options["lora_alpha"],
                  "target_modules": self.options.get("stored_targets",
                                                     self.options["target_modules"]),
                  "exclude_modules": self.options["exclude_modules"],
                  "target_parameters": self.options.get("target_parameters"),
                  "bias": "none", "task_type": "CAUSAL_LM"}
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
        write_safetensors(folder / "adapter_model.safetensors", self.adapter,
                          self.options["adapter_dtype"])
        merged, lost = dict(self.weights), {}
        for module in self.modules:
            name, delta = module + ".weight", self.delta(module)
            merged[name] = self.round(self.weights[name] + delta)
            back = self.round(merged[name] - self.round(delta))
            lost[name] = int((back != self.weights[name]).sum())
        changed = sorted(lost)
        write_safetensors(folder / "merged_changed.safetensors",
                          {name: merged[name] for name in changed}, self.options["base_dtype"])
        logits = forward(self.config, merged, self.ids)[-2:]
        exact = dict(self.weights)
        for module in self.modules:
            exact[module + ".weight"] = self.weights[module + ".weight"] + self.delta(module)
        keys = state_keys(self.weights, self.config["tie_word_embeddings"], self.modules)
        self.options.pop("stored_targets", None)
        return {"id": self.id, "fn": "lora_merge", "options": self.options,
                "inputs": {"input_ids": make_models.tensor(self.ids, "int64")},
                "outputs": {
                    "peft_state_keys": keys,
                    "exported_adapter_keys": sorted(self.adapter),
                    "normalized_keys": [k.removeprefix("base_model.model.").replace(
                        ".base_layer.", ".") for k in keys if "lora_" not in k],
                    "changed_keys": changed,
                    # Exact, not of a bfloat16 run: such a run must come near it.
                    "logits_last_two_merged_native_dtype": make_models.tensor(logits),
                    "logits_last_two_merged_fp32": make_models.tensor(logits),
                    "logits_last_two_unmerged_adapter_forward": make_models.tensor(
                        forward(self.config, exact, self.ids)[-2:]),
                    "elements_not_restored_by_arithmetic_unmerge": lost}}


def refused(case, key):
    """The same adapter without a key of its config, or with another value."""
    written = case.write()
    path = pathlib.Path(case.options["dir"]) / "adapter_config.json"
    config = json.loads(path.read_text())
    config.pop(key)
    path.write_text(json.dumps(config, indent=1) + "\n")
    (pathlib.Path(case.options["dir"]) / "merged_changed.safetensors").unlink()
    written.pop("outputs")
    return written | {"raises": "KeyError"}


def main():
    rng = np.random.default_rng(23)
    llama, qwen3 = make_models.LLAMA, make_models.QWEN3
    cases = [
        Case(0, "llama_small", llama, rng, base_dtype="float32", adapter_dtype="float32", r=3,
             lora_alpha=4, target_modules="all-linear", exclude_modules=["k_proj", "up_proj"],
             stored_targets=[n for n in LINEARS if n not in ("k_proj", "up_proj")],
             take=["*_proj"], leave=["*.k_proj", "*.up_proj"]).write(),
        Case(1, "llama_small", llama, rng, base_dtype="bfloat16", adapter_dtype="float32", r=5,
             lora_alpha=3, target_modules=r".*\.1\..*(q|v|gate)_proj", exclude_modules=None,
             take=["*.1.*.q_proj", "*.1.*.v_proj", "*.1.*.gate_proj"]).write(),
        Case(2, "qwen3_small", qwen3, rng, base_dtype="bfloat16", adapter_dtype="bfloat16", r=4,
             lora_alpha=6, target_modules=["o_proj", "mlp.down_proj"], exclude_modules=None,
             take=["*.o_proj", "*.down_proj"]).write(),
        Case(3, "qwen3_small", qwen3, rng, base_dtype="float32", adapter_dtype="bfloat16", r=2,
             lora_alpha=1, target_modules=None, exclude_modules=None,
             target_parameters=["q_proj.weight", "0.mlp.up_proj.weight"],
             take=["*.q_proj", "*.up_proj"]).write(),
        refused(Case(4, "qwen3_small", qwen3, rng, base_dtype="bfloat16", adapter_dtype="float32",
                     r=1, lora_alpha=1, target_modules=["v_proj"], exclude_modules=None,
                     take=["*.v_proj"]), "lora_alpha"),
    ]
    with open("lora.json", "w", encoding="utf-8") as file:
        json.dump({"family": "lora", "set": "committed", "cases": cases}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
