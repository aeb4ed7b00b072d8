#!/usr/bin/env python3
"""Writes rollout_correction.json: the rollout correction worked out in double precision, over lists.

Run in this folder: python3 make_rollout_correction.py
"""
import json
import math
import random
import statistics as st

BOUND = 20.0


def tensor(dtype, rows):
    flat = [value for row in rows for value in row]
    return {"dtype": dtype, "shape": [len(rows), len(rows[0])], "data": flat}


def scenario(rng, lengths, width, noise, holes=False):
    """Log-probs in eighths and noise in 64ths: differences are exact in float32."""
    rollout, policy, mask = [], [], []
    for length in lengths:
        rollout.append([-rng.randint(1, 40) / 8 for _ in range(width)])
        policy.append([min(x + rng.randint(-noise, noise) / 64, 0.0) for x in rollout[-1]])
        mask.append([int(t < length and not (holes and t % 3 == 1)) for t in range(width)])
    return {"old_log_prob": tensor("float32", policy), "rollout_log_prob": tensor("float32", rollout),
            "response_mask": tensor("int64", mask)}, policy, rollout, mask


def clamp(x, low, high):
    return max(low, min(high, x))


def mean(values):
    return st.fmean(values) if values else 0.0


def spread(values):
    """Of a population, through the mean of squares."""
    return math.sqrt(max(0.0, mean([v * v for v in values]) - mean(values) ** 2))


def sample_std(values):
    return st.stdev(values) if len(values) > 1 else 0.0


def share(flags):
    return mean([float(f) for f in flags])


def weights_of(d, mask, level, bounds, normalize, metrics):
    parts = [float(x) for x in bounds.split("_")]
    upper = parts[-1]
    lower = parts[0] if len(parts) == 2 else None
    low = lower if lower is not None else 1 / upper
    sums = [sum(x for x, m in zip(r, ms) if m) for r, ms in zip(d, mask)]
    raw = [[math.exp(clamp(x if level == "token" else s, -BOUND, BOUND)) if m else 0.0
            for x, m in zip(r, ms)] for r, ms, s in zip(d, mask, sums)]
    if lower is None:
        used = [[min(w, upper) for w in row] for row in raw]
    else:
        used = [[w if lower <= w <= upper else 0.0 for w in row] for row in raw]
    pick = lambda rows: [v for r, ms in zip(rows, mask) for v, m in zip(r, ms) if m]
    rows = [mean([v for v, m in zip(r, ms) if m]) for r, ms in zip(used, mask)]
    raw_rows = [mean([v for v, m in zip(r, ms) if m]) for r, ms in zip(raw, mask)]
    flat, raw_flat = pick(used), pick(raw)
    token = level == "token"
    metrics.update({
        "rollout_is_mean": mean(flat),
        "rollout_is_std": spread(flat) if len(flat) > 1 else 0.0,
        "rollout_is_eff_sample_size": mean(flat) ** 2 / mean([w * w for w in flat]),
        "rollout_is_max": max(flat) if token else math.exp(min(max(sums), BOUND)),
        "rollout_is_min": min(flat) if token else math.exp(min(sums)),
        "rollout_is_ratio_fraction_high":
            share([w > upper for w in raw_flat] if token else [s > math.log(upper) for s in sums]),
        "rollout_is_ratio_fraction_low":
            share([w < low for w in raw_flat] if token else [s < math.log(low) for s in sums]),
        "rollout_is_seq_mean": mean(rows), "rollout_is_seq_std": sample_std(rows),
        "rollout_is_seq_max": max(rows), "rollout_is_seq_min": min(rows),
        "rollout_is_seq_max_deviation": max(abs(r - 1) for r in rows),
        "rollout_is_seq_fraction_high": share([r > upper for r in raw_rows]),
        "rollout_is_seq_fraction_low": share([r < low for r in raw_rows])})
    if lower is not None:
        metrics["rollout_is_oob_ratio"] = share([not lower <= w <= upper for w in raw_flat])
    if normalize:
        factor = mean(flat if token else [r for r, ms in zip(rows, mask) if any(ms)])
        metrics["rollout_is_batch_norm_factor"] = factor
        used = [[w / factor for w in row] for row in used]
    return used


def divergence(kind, x):
    x = clamp(x, -BOUND, BOUND)
    return {"k1": -x, "k2": x * x / 2, "k3": math.expm1(x) - x}[kind]


def reject(d, mask, names, thresholds, metrics):
    names, thresholds = names.split(","), thresholds.split(",")
    kept = [list(ms) for ms in mask]
    for i, name in enumerate(names):
        level, kind = name.rsplit("_", 1)
        spec = thresholds[i if len(thresholds) > 1 else 0].split("_")
        upper = float(spec[-1])
        low = None
        if kind == "k1":
            low = math.log(float(spec[0]) if len(spec) == 2 else 1 / upper)
            upper = math.log(upper)
        values = [[divergence(kind, x) for x, m in zip(r, ms) if m] for r, ms in zip(d, mask)]
        how = {"seq_sum": sum, "seq_max": max}.get(level, mean)
        whole = [how(v) for v in values if v]
        if level != "token":
            values = [[how(v)] * len(v) if v else [] for v in values]
        flat = [x for v in values for x in v]
        outside = lambda x: x > upper or (low is not None and x < low)
        clamped = [clamp(x, 0.0 if low is None else low, upper) for x in flat]
        of = flat if level == "token" else whole
        cut = [any(outside(x) for x in v) for v in values if v]
        stats = {"mean": mean(flat), "max": max(of), "min": min(of),
                 "fraction_high": share([x > upper for x in of]),
                 "fraction_low": share([low is not None and x < low for x in of]),
                 "std": spread(clamped) if len(flat) > 1 else 0.0,
                 "seq_mean": mean(whole), "seq_std": sample_std(whole), "seq_max": max(whole),
                 "seq_min": min(whole), "seq_max_deviation": max(abs(x) for x in whole),
                 "seq_fraction_high": share([x > upper for x in whole]),
                 "masked_fraction": share([outside(x) for x in flat]),
                 "seq_masked_fraction": share(cut)}
        if low is not None:
            stats["seq_fraction_low"] = share([x < low for x in whole])
        metrics.update({f"rollout_rs_{name}_{k}": v for k, v in stats.items()})
        for row, ms, v in zip(kept, mask, values):
            for t, x in zip([t for t, m in enumerate(ms) if m], v):
                row[t] = 0 if outside(x) else row[t]
    lost = [[m - k for m, k in zip(ms, ks)] for ms, ks in zip(mask, kept)]
    metrics["rollout_rs_masked_fraction"] = sum(map(sum, lost)) / sum(map(sum, mask))
    metrics["rollout_rs_seq_masked_fraction"] = share([any(row) for row in lost])
    return kept


def off_policy(policy, rollout, d, mask, metrics):
    pick = lambda rows: [[v for v, m in zip(r, ms) if m] for r, ms in zip(rows, mask)]
    ours, theirs = [mean(r) for r in pick(policy)], [mean(r) for r in pick(rollout)]
    flat = [x for r in pick(d) for x in r]
    diff = [b - a for a, b in zip(ours, theirs)]
    metrics.update({
        "training_ppl": mean([math.exp(-x) for x in ours]), "training_log_ppl": -mean(ours),
        "rollout_ppl": mean([math.exp(-x) for x in theirs]), "rollout_log_ppl": -mean(theirs),
        "kl": -mean(flat), "k3_kl": mean([math.expm1(x) - x for x in flat]),
        "log_ppl_diff": mean(diff), "log_ppl_abs_diff": mean([abs(x) for x in diff]),
        "log_ppl_diff_max": max(diff), "log_ppl_diff_min": min(diff),
        "ppl_ratio": mean([math.exp(x) for x in diff]),
        "chi2_token": mean([math.exp(2 * clamp(x, -BOUND, BOUND)) for x in flat]) - 1,
        "chi2_seq": mean([math.exp(2 * clamp(sum(r), -BOUND, BOUND)) for r in pick(d)]) - 1})


def correction(arrays, options):
    _, policy, rollout, mask = arrays
    d = [[a - b for a, b in zip(p, r)] for p, r in zip(policy, rollout)]
    metrics, weights, kept = {}, None, mask
    if "rollout_is" in options:
        weights = weights_of(d, mask, options["rollout_is"], str(options["rollout_is_threshold"]),
                             options.get("rollout_is_batch_normalize", False), metrics)
    if "rollout_rs" in options:
        kept = reject(d, mask, options["rollout_rs"], str(options["rollout_rs_threshold"]), metrics)
    off_policy(policy, rollout, d, mask, metrics)
    return {"rollout_is_weights": weights and tensor("float32", weights),
            "response_mask": tensor("int64", kept),
            "metrics": {"rollout_corr/" + name: value for name, value in metrics.items()}}


def debug(arrays):
    _, policy, rollout, mask = arrays
    pairs = [(math.exp(a), math.exp(b)) for p, r, ms in zip(policy, rollout, mask)
             for a, b, m in zip(p, r, ms) if m]
    diff = [abs(a - b) for a, b in pairs]
    return {"metrics": {
        "training/rollout_probs_diff_valid": 1,
        "training/rollout_probs_diff_max": max(diff), "training/rollout_probs_diff_mean": mean(diff),
        "training/rollout_probs_diff_std": st.stdev(diff),
        "training/rollout_actor_probs_pearson_corr": st.correlation(*zip(*pairs))}}


CASES = [
    {"rollout_is": "token", "rollout_is_threshold": 1.4},
    {"rollout_is": "token", "rollout_is_threshold": "0.7_1.3", "rollout_is_batch_normalize": True},
    {"rollout_is": "sequence", "rollout_is_threshold": 3.0},
    {"rollout_is": "sequence", "rollout_is_threshold": 4, "rollout_is_batch_normalize": True},
    {"rollout_is": "sequence", "rollout_is_threshold": "0.4_2.5"},
] + [{"rollout_rs": f"{level}_{kind}", "rollout_rs_threshold": bound}
     for level, bounds in (("token", ("0.75_1.3", 0.05, "0.04")),
                           ("seq_sum", ("0.5_1.8", 0.3, 0.35)),
                           ("seq_mean", (1.07, 0.05, 0.045)), ("seq_max", (None, 0.2, 0.25)))
     for kind, bound in zip(("k1", "k2", "k3"), bounds) if bound] + [
    {"rollout_is": "token", "rollout_is_threshold": 2.0,
     "rollout_rs": "token_k1,seq_mean_k2", "rollout_rs_threshold": "0.6_1.6,0.06"},
]
REFUSED = [{"rollout_is": "tokens", "rollout_is_threshold": 2.0},
           {"rollout_is": "token", "rollout_is_threshold": "2_0.5"},
           {"rollout_rs": "seq_max_k1", "rollout_rs_threshold": "2"},
           {"rollout_rs": "token_k2,token_k3", "rollout_rs_threshold": "1,2,3"},
           {"rollout_rs": "token_k3"}]


def main():
    rng = random.Random(11)
    made = {"uneven": scenario(rng, [6, 3, 1, 5], 6, 30),
            "holes_and_empty": scenario(rng, [7, 0, 4, 2, 7], 7, 40, holes=True)}
    fn = "compute_rollout_correction_and_rejection_mask"
    cases = []
    for name, arrays in made.items():
        for options in CASES:
            cases.append({"id": f"own/{name}/{len(cases)}", "fn": fn, "options": options,
                          "scenario": name, "outputs": correction(arrays, options)})
        for options in REFUSED:
            cases.append({"id": f"own/{name}/{len(cases)}", "fn": fn, "options": options,
                          "scenario": name, "raises": "ValueError"})
        cases.append({"id": f"own/{name}/debug", "fn": "calculate_debug_metrics", "options": {},
                      "scenario": name, "outputs": debug(arrays)})
    with open("rollout_correction.json", "w", encoding="utf-8") as file:
        json.dump({"family": "rollout_correction", "set": "committed",
                   "scenarios": {name: arrays[0] for name, arrays in made.items()},
                   "cases": cases}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
