#!/usr/bin/env python3
"""Writes schedules.json: learning rates and KL coefficients worked out in double precision.

Run in this folder: python3 make_schedules.py
"""
import json
import math
import random


def constant(lr, num_warmup_steps, steps):
    return [lr * (min(1.0, s / num_warmup_steps) if num_warmup_steps else 1.0) for s in range(steps)]


def cosine(lr, num_warmup_steps, num_training_steps, steps, min_lr_ratio=0.0, num_cycles=0.5):
    rates = []
    for s in range(steps):
        if s < num_warmup_steps:
            rates.append(lr * s / num_warmup_steps)
            continue
        wave = math.cos(2 * math.pi * num_cycles * (s - num_warmup_steps)
                        / max(1, num_training_steps - num_warmup_steps))
        rates.append(lr * max(min_lr_ratio, (1 + min_lr_ratio) / 2 + (1 - min_lr_ratio) / 2 * wave))
    return rates


def wsd(lr, num_warmup_steps, num_training_steps, steps, stable_ratio=0.9, min_lr_ratio=0.0,
        num_cycles=0.5):
    """Warm-up up to the edge, a plateau, a cosine over what is left, min_lr_ratio for ever after."""
    plateau = int(max(0, num_training_steps - num_warmup_steps) * stable_ratio)
    decay_begin = num_warmup_steps + plateau
    rates = []
    for s in range(steps):
        if s < num_warmup_steps:
            factor = s / num_warmup_steps
        elif s < decay_begin:
            factor = 1.0
        elif s < num_training_steps:
            part = (s - decay_begin) / max(1, num_training_steps - decay_begin)
            height = (1 + math.cos(2 * math.pi * num_cycles * part)) / 2
            factor = min_lr_ratio + (1 - min_lr_ratio) * height
        else:
            factor = min_lr_ratio
        rates.append(lr * factor)
    return rates


def rates_case(name, function, options, steps):
    return {"id": f"own/{name}", "fn": function.__name__, "options": options, "inputs": {},
            "outputs": {"lr_used_at_step": function(**options, steps=steps)}}


def next_coef(options, coef, kl, samples):
    if options["type"] == "fixed":
        return coef
    error = min(0.2, max(-0.2, kl / options["target_kl"] - 1))
    return coef * (1 + error * samples / options["horizon"])


def controller_case(rng, name, options, rounds=9):
    kls = [rng.uniform(-0.5, 3) * options["target_kl"] for _ in range(rounds)]
    samples = [rng.randint(1, 600) for _ in range(rounds)]
    values = []
    for kl, n in zip(kls, samples):
        values.append(next_coef(options, values[-1] if values else options["kl_coef"], kl, n))
    return {"id": f"own/{name}", "fn": "kl_controller", "options": options,
            "inputs": {"current_kl": kls, "n_steps": samples}, "outputs": {"values": values}}


ESTIMATORS = {"kl": lambda d: d, "abs": abs, "k2": lambda d: d * d / 2,
              "k3": lambda d: math.exp(-d) + d - 1, "k3+": lambda d: math.exp(-d) + d - 1}


def tensor(dtype, rows):
    return {"dtype": dtype, "shape": [len(rows), len(rows[0])], "data": sum(rows, [])}


def penalty_case(rng, name, estimator, mask, repeats=3):
    """Differences are multiples of 1/8 and the scores of 1/4: float32 holds the inputs exactly."""
    options = {"kl_penalty": estimator, "init_kl_coef": 0.05, "target_kl": 0.2, "horizon": 40,
               "repeats": repeats}
    rows, width = len(mask), len(mask[0])
    ref = [[-rng.randint(1, 16) / 8 for _ in range(width)] for _ in range(rows)]
    old = [[-rng.randint(1, 16) / 8 for _ in range(width)] for _ in range(rows)]
    scores = [[rng.randint(-8, 8) / 4 for _ in range(width)] for _ in range(rows)]
    kl = [[ESTIMATORS[estimator](o - r) * m for o, r, m in zip(*line)]
          for line in zip(old, ref, mask)]
    mean = sum(sum(line) / max(1, sum(m)) for line, m in zip(kl, mask)) / rows
    coef, steps = options["init_kl_coef"], []
    for _ in range(repeats):
        rewards = [[s - coef * k for s, k in zip(*line)] for line in zip(scores, kl)]
        after = next_coef({"type": "adaptive", **options}, coef, mean, rows)
        steps.append({"metrics": {"actor/reward_kl_penalty": mean,
                                  "actor/reward_kl_penalty_coeff": coef},
                      "coef_after": after, "token_level_rewards": tensor("float32", rewards)})
        coef = after
    return {"id": f"own/{name}", "fn": "apply_kl_penalty", "options": options,
            "inputs": {"response_mask": tensor("int64", mask),
                       "token_level_scores": tensor("float32", scores),
                       "old_log_probs": tensor("float32", old),
                       "ref_log_prob": tensor("float32", ref)},
            "outputs": {"steps": steps}}


def main():
    rng = random.Random(11)
    adaptive = {"type": "adaptive", "kl_coef": 0.01, "target_kl": 0.3, "horizon": 500}
    tails = [[1, 1, 1, 1, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]]
    holes = [[1, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]]
    cases = [
        rates_case("constant", constant, {"lr": 2e-5, "num_warmup_steps": 4}, 8),
        rates_case("cosine", cosine, {"lr": 2e-5, "num_warmup_steps": 2, "num_training_steps": 10,
                                      "min_lr_ratio": 0.1}, 11),
        rates_case("cosine/waves", cosine, {"lr": 1e-3, "num_warmup_steps": 1,
                                            "num_training_steps": 9, "num_cycles": 1.5}, 10),
        rates_case("wsd", wsd, {"lr": 3e-5, "num_warmup_steps": 3, "num_training_steps": 20}, 24),
        rates_case("wsd/short plateau", wsd, {"lr": 3e-5, "num_warmup_steps": 2,
                                              "num_training_steps": 13, "stable_ratio": 0.3,
                                              "min_lr_ratio": 0.25}, 15),
        rates_case("wsd/no plateau", wsd, {"lr": 1e-4, "num_warmup_steps": 0,
                                           "num_training_steps": 6, "stable_ratio": 0.0,
                                           "num_cycles": 1.0}, 8),
        rates_case("wsd/warm-up alone", wsd, {"lr": 1e-4, "num_warmup_steps": 6,
                                              "num_training_steps": 4}, 8),
        controller_case(rng, "kl_controller/adaptive", adaptive),
        controller_case(rng, "kl_controller/fixed", {**adaptive, "type": "fixed"}),
        penalty_case(rng, "apply_kl_penalty/tails", "kl", tails),
        penalty_case(rng, "apply_kl_penalty/holes", "k2", holes),
        penalty_case(rng, "apply_kl_penalty/plus", "k3+", tails),
    ]
    with open("schedules.json", "w", encoding="utf-8") as file:
        json.dump({"family": "schedules", "set": "committed",
                   "source": {"own": "make_schedules.py"}, "cases": cases}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
