#!/usr/bin/env python3
"""Writes models.json and models/: tiny random decoders and what they compute, by numpy in float64.

The forward below follows the published definitions of Llama and Qwen3 and shares nothing with the
C++ code; gradients are central differences of the loss, parameter by parameter.
Run in this folder with numpy installed (about a minute): python3 make_models.py
"""
import json
import pathlib
import struct

import numpy as np

LLAMA = {"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 64,
         "tie_word_embeddings": False, "torch_dtype": "float32"}
QWEN3 = {"model_type": "qwen3", "vocab_size": 48, "hidden_size": 16, "intermediate_size": 40,
         "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 8,
         "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "max_position_embeddings": 64,
         "tie_word_embeddings": True, "torch_dtype": "bfloat16"}
COMMON = {"hidden_act": "silu", "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2,
          "rope_scaling": None}


def shapes(c):
    hidden, inner, dim = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    queries, keys = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    result = {"model.embed_tokens.weight": (c["vocab_size"], hidden)}
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        result[at + "input_layernorm.weight"] = (hidden,)
        result[at + "self_attn.q_proj.weight"] = (queries, hidden)
        result[at + "self_attn.k_proj.weight"] = (keys, hidden)
        result[at + "self_attn.v_proj.weight"] = (keys, hidden)
        result[at + "self_attn.o_proj.weight"] = (hidden, queries)
        if c["model_type"] == "qwen3":
            result[at + "self_attn.q_norm.weight"] = (dim,)
            result[at + "self_attn.k_norm.weight"] = (dim,)
        result[at + "post_attention_layernorm.weight"] = (hidden,)
        result[at + "mlp.gate_proj.weight"] = (inner, hidden)
        result[at + "mlp.up_proj.weight"] = (inner, hidden)
        result[at + "mlp.down_proj.weight"] = (hidden, inner)
    result["model.norm.weight"] = (hidden,)
    if not c["tie_word_embeddings"]:
        result["lm_head.weight"] = (c["vocab_size"], hidden)
    return result


def to_bfloat16(values):
    """The upper halves of float32 bits, rounded to nearest even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def random_weights(c, rng):
    """(file bytes, float64 values) by name."""
    stored, values = {}, {}
    for name, shape in shapes(c).items():
        centre, spread = (1.0, 0.2) if "norm" in name else (0.0, 1.2 / shape[-1] ** 0.5)
        if name in ("model.embed_tokens.weight", "lm_head.weight"):
            spread = 0.5
        weights = (centre + spread * rng.standard_normal(shape)).astype(np.float32)
        if c["torch_dtype"] == "bfloat16":
            half = to_bfloat16(weights)
            stored[name] = half.tobytes()
            weights = (half.astype(np.uint32) << 16).view(np.float32)
        else:
            stored[name] = weights.tobytes()
        values[name] = weights.astype(np.float64)
    return stored, values


def write_model(folder, c, stored):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(c | COMMON, indent=1) + "\n", encoding="utf-8")
    header, offset = {}, 0
    for name, data in stored.items():
        header[name] = {"dtype": "BF16" if c["torch_dtype"] == "bfloat16" else "F32",
                        "shape": shapes(c)[name], "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text
                                               + b"".join(stored.values()))


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, c):
    """x [tokens, heads, dim]: pairs (i, i + dim / 2) turn by position / theta^(2 i / dim)."""
    half = c["head_dim"] // 2
    angles = np.outer(np.arange(len(x)), c["rope_theta"] ** (-np.arange(half) / half))[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles),
                           b * np.cos(angles) + a * np.sin(angles)], -1)


def attention(c, w, at, x):
    tokens, dim, kv = len(x), c["head_dim"], c["num_key_value_heads"]
    group = c["num_attention_heads"] // kv
    q = (x @ w[at + "q_proj.weight"].T).reshape(tokens, -1, dim)
    k = (x @ w[at + "k_proj.weight"].T).reshape(tokens, kv, dim)
    v = (x @ w[at + "v_proj.weight"].T).reshape(tokens, kv, dim)
    if c["model_type"] == "qwen3":
        q = rms_norm(q, w[at + "q_norm.weight"], c["rms_norm_eps"])
        k = rms_norm(k, w[at + "k_norm.weight"], c["rms_norm_eps"])
    q, k = rotate(q, c), np.repeat(rotate(k, c), group, 1)
    scores = np.einsum("ihd,jhd->hij", q, k) / dim ** 0.5
    scores = np.where(np.tril(np.ones((tokens, tokens), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = np.einsum("hij,jhd->ihd", weights, np.repeat(v, group, 1))
    return mixed.reshape(tokens, -1) @ w[at + "o_proj.weight"].T


def forward(c, w, ids):
    """Logits [tokens, vocab]."""
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        y = rms_norm(x, w[at + "input_layernorm.weight"], c["rms_norm_eps"])
        x = x + attention(c, w, at + "self_attn.", y)
        y = rms_norm(x, w[at + "post_attention_layernorm.weight"], c["rms_norm_eps"])
        gate, up = y @ w[at + "mlp.gate_proj.weight"].T, y @ w[at + "mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[at + "mlp.down_proj.weight"].T
    x = rms_norm(x, w["model.norm.weight"], c["rms_norm_eps"])
    return x @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


def log_probs(logits, ids):
    """Of token i + 1 at position i."""
    top = logits.max(-1, keepdims=True)
    all_tokens = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    return all_tokens[np.arange(len(ids) - 1), ids[1:]]


def tensor(values, dtype="float32"):
    values = np.asarray(values)
    show = int if dtype == "int64" else (lambda value: float(f"{value:.9g}"))
    return {"dtype": dtype, "shape": list(values.shape), "data": [show(v) for v in values.flat]}


def greedy(c, w, ids, count):
    ids, margins = list(ids), []
    for _ in range(count):
        last = forward(c, w, np.array(ids))[-1]
        order = np.argsort(last)
        margins.append(float(last[order[-1]] - last[order[-2]]))
        ids.append(int(order[-1]))
    return ids[-count:], margins


def prompt_outputs(c, w, ids):
    logits = forward(c, w, ids)
    new_tokens, margins = greedy(c, w, ids, 6)
    first = max(0, len(ids) - 4)
    return {"input_ids": tensor(ids, "int64"), "logits_rows_from": first,
            "logits": tensor(logits[first:]), "token_logprobs": tensor(log_probs(logits, ids)),
            "greedy_new_tokens": tensor(new_tokens, "int64"), "greedy_top2_margin": margins}


def gradients(c, w, ids, step=1e-5):
    def loss():
        return -log_probs(forward(c, w, ids), ids).mean()

    result = {}
    for name, weight in w.items():
        flat, gradient = weight.reshape(-1), np.empty(weight.size)
        for i, value in enumerate(flat):
            flat[i] = value + step
            above = loss()
            flat[i] = value - step
            gradient[i] = (above - loss()) / (2 * step)
            flat[i] = value
        result[name] = gradient
    return loss(), result


def case(name, c, rng):
    stored, w = random_weights(c, rng)
    write_model(pathlib.Path("models") / name, c, stored)
    prompts = [rng.integers(3, c["vocab_size"], n) for n in (1, 4, 9)]
    loss, by_name = gradients(c, w, prompts[-1])
    outputs = {
        "prompts": [prompt_outputs(c, w, ids) for ids in prompts],
        "loss_mean_nll_longest_prompt": tensor(loss),
        "grad_norms": {k: float(f"{np.linalg.norm(g):.9g}") for k, g in by_name.items()},
        "grad_first_values": {k: tensor(g[:4]) for k, g in by_name.items()},
        # Exact, not of a bfloat16 run: such a run must come near it.
        "bf16_last_row_logits": tensor(forward(c, w, prompts[-1])[-1])}
    return {"id": "own/" + name, "fn": "causal_lm_forward",
            "options": {"dir": "models/" + name, "model_type": c["model_type"],
                        "weights_dtype": c["torch_dtype"], "compute_dtype": "float32"},
            "outputs": outputs}


def main():
    rng = np.random.default_rng(11)
    cases = [case("llama_small", LLAMA, rng), case("qwen3_small", QWEN3, rng)]
    with open("models.json", "w", encoding="utf-8") as file:
        json.dump({"family": "models", "set": "committed", "cases": cases}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
