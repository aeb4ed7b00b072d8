#!/usr/bin/env python3
"""Writes advantages.json: GRPO worked out in double precision by the statistics module.

Run in this folder: python3 make_advantages.py
"""
import json
import random
import statistics

EPSILON = 1e-6


def tensor(dtype, rows):
    flat = [value for row in rows for value in row]
    return {"dtype": dtype, "shape": [len(rows), len(rows[0])], "data": flat}


def scenario(rng, groups, width, score):
    """One row per entry of `groups`; rewards sit on the last token of each response."""
    mask, rewards = [], []
    for _ in groups:
        length = rng.randint(1, width)
        mask.append([1] * length + [0] * (width - length))
        rewards.append([0.0] * (length - 1) + [score(rng)] + [0.0] * (width - length))
    return {"token_level_rewards": tensor("float32", rewards),
            "response_mask": tensor("int64", mask), "uid": groups, "atol_hint": 1e-5}


def grpo(batch, by_std):
    width = batch["response_mask"]["shape"][1]
    data, mask = batch["token_level_rewards"]["data"], batch["response_mask"]["data"]
    scores = [sum(data[i:i + width]) for i in range(0, len(data), width)]
    out = []
    for row, group in enumerate(batch["uid"]):
        members = [s for s, g in zip(scores, batch["uid"]) if g == group]
        mean = statistics.fmean(members) if len(members) > 1 else 0.0
        std = statistics.stdev(members) if len(members) > 1 else 1.0
        value = (scores[row] - mean) / (std + EPSILON) if by_std else scores[row] - mean
        out.append([value * mask[row * width + t] for t in range(width)])
    return tensor("float32", out)


def main():
    rng = random.Random(7)
    scenarios = {
        "binary": scenario(rng, list("aaaabbbb"), 5, lambda r: float(r.randint(0, 1))),
        "interleaved": scenario(rng, list("abcabcabca"), 7, lambda r: r.randint(-8, 8) / 4),
        "alone": scenario(rng, list("abc"), 3, lambda r: r.randint(-8, 8) / 4),
        "equal": scenario(rng, list("aaa"), 2, lambda r: 0.25),
    }
    cases = []
    for fn in ("grpo", "grpo_vectorized"):
        for name, batch in scenarios.items():
            for by_std in (True, False):
                cases.append({"id": f"own/{fn}/{name}/{'std' if by_std else 'centred'}",
                              "fn": fn, "scenario": name,
                              "options": {"norm_adv_by_std_in_grpo": by_std, "epsilon": EPSILON},
                              "outputs": {"advantages": grpo(batch, by_std),
                                          "returns": "same as advantages"}})
    with open("advantages.json", "w", encoding="utf-8") as file:
        json.dump({"family": "advantages", "set": "committed", "scenarios": scenarios,
                   "cases": cases}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
