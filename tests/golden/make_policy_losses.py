#!/usr/bin/env python3
"""Writes policy_losses.json: every policy loss as a closed formula in double precision, gradients by
central differences. What a loss takes as a constant (a stopped gradient) is held fixed meanwhile.

Run in this folder: python3 make_policy_losses.py
"""
import copy
import json
import math
import random
import struct

STEP = 1e-6
MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean",
         "seq-mean-token-sum-norm")
EXTRA = {
    "sapo": {"tau_pos": 1.5, "tau_neg": 0.75},
    "dro": {"dro_beta": 0.3},
    # Selects all candidates, so that chance has no part in it.
    "clip_cov": {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.02, "clip_cov_ub": 3.0},
    "kl_cov": {"kl_cov_ratio": 0.4, "ppo_kl_coef": 0.5},
}
METRICS = {
    "gpg": (), "dro": ("kl",), "kl_cov": ("kl",), "clip_cov": ("clip", "kl"),
}


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def clip(x, low, high):
    return min(max(x, low), high)


class Batch:
    """Flat arrays of `rows` responses of `width` slots."""

    def __init__(self, rng, lengths, width, spread):
        self.rows, self.width = len(lengths), width
        n = self.rows * width
        self.old = [f32(-rng.uniform(0.05, 3)) for _ in range(n)]
        self.now = [f32(min(x + rng.gauss(0, spread), -0.01)) for x in self.old]
        self.adv = [f32(rng.gauss(0, 1)) for _ in range(n)]
        self.ref = [f32(x + rng.gauss(0, 0.3)) for x in self.now]
        self.weights = [f32(rng.uniform(0.4, 1.8)) for _ in range(n)]
        self.mask = [int(t < length) for length in lengths for t in range(width)]
        hole = next((i for i, m in enumerate(self.mask) if m and self.mask[i + 1:i + 2] == [1]), 0)
        self.mask[hole] = 0  # counts nothing, in the middle of a response
        self.on = [i for i in range(n) if self.mask[i]]

    def row(self, i):
        return [k for k in self.on if k // self.width == i]

    def json(self):
        def tensor(dtype, data):
            return {"dtype": dtype, "shape": [self.rows, self.width], "data": data}
        return {"old_log_prob": tensor("float32", self.old), "log_prob": tensor("float32", self.now),
                "advantages": tensor("float32", self.adv), "response_mask": tensor("bool", self.mask),
                "rollout_is_weights": tensor("float32", self.weights),
                "ref_log_prob": tensor("float32", self.ref)}


def selection(name, batch, o):
    """Tokens that clip_cov and kl_cov treat apart."""
    count = len(batch.on)
    mean_adv = sum(batch.adv[i] for i in batch.on) / count
    mean_now = sum(batch.now[i] for i in batch.on) / count
    cov = {i: (batch.adv[i] - mean_adv) * (batch.now[i] - mean_now) for i in batch.on}
    if name == "kl_cov":
        k = max(1, int(count * o["kl_cov_ratio"]))
        return set(sorted(batch.on, key=lambda i: -cov[i])[:k])
    if name != "clip_cov":
        return set()

    def clipped(i):
        r = math.exp(batch.now[i] - batch.old[i])
        cut = clip(r, 1 - o["clip_ratio_low"], 1 + o["clip_ratio_high"])
        return -batch.adv[i] * cut > -batch.adv[i] * r
    return {i for i in batch.on if o["clip_cov_lb"] < cov[i] < o["clip_cov_ub"] and not clipped(i)}


def token(name, batch, o, i, x, chosen):
    """(loss, clipped, clipped by c, old - new) of token i at log-prob x; batch.now is constant."""
    a, d = batch.adv[i], x - batch.old[i]
    fixed = clip(batch.now[i] - batch.old[i], -20, 20)
    lo, hi = 1 - o["clip_ratio_low"], 1 + o["clip_ratio_high"]
    if name == "vanilla":
        r = math.exp(clip(d, -20, 20))
        plain, cut = -a * r, -a * clip(r, lo, hi)
        loss, bound = max(plain, cut), -a * o["clip_ratio_c"]
        dual = a < 0 and loss > bound
        return (bound if dual else loss), cut > plain, dual, -clip(d, -20, 20)
    if name == "gspo":
        row = batch.row(i // batch.width)
        mean = sum(batch.now[k] - batch.old[k] for k in row) / max(len(row), 1)
        r = math.exp(min(x - batch.now[i] + mean, 10))
        plain, cut = -a * r, -a * clip(r, lo, hi)
        return max(plain, cut), cut > plain, False, -d
    if name == "cispo":
        r = math.exp(fixed)
        return -clip(r, lo, hi) * a * x, r != clip(r, lo, hi), False, -fixed
    if name == "sapo":
        tau = o["tau_pos"] if a > 0 else o["tau_neg"]
        gate = 1 / (1 + math.exp(-tau * (math.exp(clip(d, -20, 20)) - 1)))
        return -a * gate * 4 / tau, False, False, -clip(d, -20, 20)
    if name == "gpg":
        return -a * x, False, False, -d
    if name == "dro":
        return -(a * x - o["dro_beta"] / 2 * d * d), False, False, -d
    if name in ("dppo_tv", "dppo_kl"):
        p, q = math.exp(batch.now[i]), math.exp(batch.old[i])
        if name == "dppo_tv":
            valid = p - q <= o["clip_ratio_high"] if a > 0 else p - q >= -o["clip_ratio_low"]
        else:
            kl = q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))
            valid = (p <= q or kl <= o["clip_ratio_high"]) if a > 0 else \
                (p >= q or kl <= o["clip_ratio_low"])
        r = math.exp(fixed)
        weight = min(r, o["clip_ratio_c"]) if valid else 0
        return -a * weight * x, not valid, valid and r > o["clip_ratio_c"], -fixed
    if name == "clip_cov":
        r = math.exp(d)
        loss = max(-a * r, -a * clip(r, lo, hi))
        return (0 if i in chosen else loss), i in chosen, False, -d
    assert name == "kl_cov"
    return -a * math.exp(d) + (o["ppo_kl_coef"] * abs(d) if i in chosen else 0), False, False, abs(d)


def geo_mean(batch, o, now):
    """The loss of every row."""
    losses = []
    for r in range(batch.rows):
        row = batch.row(r)
        if not row:
            losses.append(0.0)
            continue
        cut = 0
        for i in row:
            d = now[i] - batch.old[i]
            c = clip(d, -o["clip_ratio_low"], o["clip_ratio_high"])
            cut += min(d, c) if batch.adv[i] > 0 else max(d, c)
        weight = sum(math.log(batch.weights[i]) for i in row) / len(row)
        losses.append(-sum(batch.adv[i] for i in row) / len(row) * math.exp(cut / len(row)) *
                      (math.exp(weight) if o["use_rollout_is_weights"] else 1))
    return losses


def aggregate(batch, mode, values, world):
    ranks = world.get("dp_size", 1)
    samples = world.get("global_batch_size", sum(1 for r in range(batch.rows) if batch.row(r)))
    rows = [[values[i] for i in batch.row(r)] for r in range(batch.rows)]
    if mode == "token-mean":
        return sum(map(sum, rows)) / world.get("batch_num_tokens", len(batch.on)) * ranks
    if mode == "token-sum":
        return sum(map(sum, rows)) * ranks
    if mode == "seq-mean-token-mean":
        return sum(sum(row) / len(row) for row in rows if row) / samples * ranks
    mean = sum(map(sum, rows)) / samples * ranks
    norm = mode == "seq-mean-token-sum-norm"
    return mean / (world.get("loss_scale_factor", batch.width) if norm else 1)


def loss_of(name, batch, o, now, chosen):
    if name == "geo_mean":  # of the batch at hand, whatever the global one is
        return sum(geo_mean(batch, o, now)) / batch.rows
    values = {}
    for i in batch.on:
        weight = batch.weights[i] if o["use_rollout_is_weights"] else 1
        values[i] = token(name, batch, o, i, now[i], chosen)[0] * weight
    mode = "seq-mean-token-mean" if name == "sapo" else o["loss_agg_mode"]
    return aggregate(batch, mode, values, o["global_batch_info"])


def metrics_of(name, batch, o, chosen):
    if name == "geo_mean":
        d = {i: batch.now[i] - batch.old[i] for i in batch.on}
        out = {i: not -o["clip_ratio_low"] <= d[i] <= o["clip_ratio_high"] for i in batch.on}
        terms = [(0, out[i] and batch.adv[i] > 0, out[i] and batch.adv[i] < 0, -d[i])
                 for i in batch.on]
    else:
        terms = [token(name, batch, o, i, batch.now[i], chosen) for i in batch.on]
    all_of = {"clip": ("actor/pg_clipfrac", 1), "lower": ("actor/pg_clipfrac_lower", 2),
              "kl": ("actor/ppo_kl", 3)}
    return {key: sum(t[k] for t in terms) / len(terms)
            for short, (key, k) in all_of.items()
            if short in METRICS.get(name, ("clip", "lower", "kl"))}


def case(name, number, scenario, batch, o):
    chosen = selection(name, batch, o)
    gradient = []
    for i in range(len(batch.now)):
        up, down = list(batch.now), list(batch.now)
        up[i] += STEP
        down[i] -= STEP
        gradient.append((loss_of(name, batch, o, up, chosen) -
                         loss_of(name, batch, o, down, chosen)) / (2 * STEP))
    shape = [batch.rows, batch.width]
    return {"id": f"own/{name}/{number}", "fn": name, "scenario": scenario, "options": o,
            "outputs": {"loss": {"dtype": "float32", "shape": [],
                                 "data": [loss_of(name, batch, o, batch.now, chosen)]},
                        "metrics": metrics_of(name, batch, o, chosen),
                        "grad_log_prob": {"dtype": "float32", "shape": shape, "data": gradient}}}


BYPASS = (  # loss_type, rollout_is, rollout_is_threshold, rollout_rs, rollout_rs_threshold
    ("ppo_clip", "token", 2.0, "token_k1", "0.75_1.4"),
    ("ppo_clip", None, 2.0, "seq_mean_k2", "0.006"),
    ("reinforce", "token", 1.1, None, None),
    ("reinforce", "sequence", 1.6, "token_k3", "0.02"),
    ("reinforce", None, 2.0, "token_k2,seq_max_k3", "0.04,0.08"),
    ("reinforce", "token", "0.8_1.3", "seq_sum_k1", "0.85_1.2"),
)


def divergence(kind, d):
    return {"k1": -d, "k2": d * d / 2, "k3": math.exp(d) - 1 - d}[kind]


def kept_by(batch, criterion, threshold):
    """Tokens that one criterion of rejection keeps."""
    level, kind = criterion.rsplit("_", 1)
    d = {i: batch.now[i] - batch.old[i] for i in batch.on}
    if kind == "k1":
        low, high = (math.log(float(x)) for x in threshold.split("_"))
    else:
        low, high = -math.inf, float(threshold)

    def value(i):
        row = [divergence(kind, d[k]) for k in batch.row(i // batch.width)]
        return {"token": divergence(kind, d[i]), "seq_sum": sum(row), "seq_max": max(row),
                "seq_mean": sum(row) / len(row)}[level]
    return {i for i in batch.on if low <= value(i) <= high}


def bypass_weights(batch, level, threshold):
    low, high = 0, threshold
    band = isinstance(threshold, str)
    if band:
        low, high = map(float, threshold.split("_"))
    weights = {}
    for i in batch.on:
        of = [i] if level == "token" else batch.row(i // batch.width)
        weight = math.exp(sum(batch.now[k] - batch.old[k] for k in of))
        weights[i] = (weight if low <= weight <= high else 0) if band else min(weight, high)
    return weights


def bypass_case(number, scenario, batch, o):
    """Rejection and weights from the policy in training, both constants of the gradient."""
    c = o["rollout_correction"]
    kept = copy.copy(batch)
    if c["rollout_rs"]:
        for criterion, threshold in zip(c["rollout_rs"].split(","),
                                        c["rollout_rs_threshold"].split(",")):
            keeps = kept_by(batch, criterion, threshold)
            kept.on = [i for i in kept.on if i in keeps]
    weights = bypass_weights(batch, c["rollout_is"], c["rollout_is_threshold"]) \
        if c["rollout_is"] else {}
    name = "vanilla" if c["loss_type"] == "ppo_clip" else "gpg"

    def loss(now):
        values = {i: token(name, batch, o, i, now[i], ())[0] *
                  (weights.get(i, 1) if name == "gpg" else 1) for i in kept.on}
        return aggregate(kept, o["loss_agg_mode"], values, o["global_batch_info"])
    gradient = []
    for i in range(len(batch.now)):
        up, down = list(batch.now), list(batch.now)
        up[i] += STEP
        down[i] -= STEP
        gradient.append((loss(up) - loss(down)) / (2 * STEP))
    metrics = metrics_of(name, kept, o, ())
    metrics["actor/ppo_kl"] = sum(batch.old[i] - batch.now[i] for i in kept.on) / len(kept.on)
    metrics["rollout_corr/kl"] = sum(batch.old[i] - batch.now[i] for i in batch.on) / len(batch.on)
    if c["rollout_rs"]:
        metrics["rollout_corr/rollout_rs_masked_fraction"] = 1 - len(kept.on) / len(batch.on)
    if weights:
        metrics["rollout_corr/rollout_is_mean"] = sum(weights.values()) / len(weights)
    return {"id": f"own/bypass_mode/{number}", "fn": "bypass_mode", "scenario": scenario,
            "options": o,
            "outputs": {"loss": {"dtype": "float32", "shape": [], "data": [loss(batch.now)]},
                        "metrics": metrics,
                        "grad_log_prob": {"dtype": "float32", "shape": [batch.rows, batch.width],
                                          "data": gradient}}}


def bypass_cases(batch, scenario, worlds):
    for number in range(2 * len(BYPASS)):
        loss_type, level, bound, criteria, thresholds = BYPASS[number % len(BYPASS)]
        yield bypass_case(number, scenario, batch, {
            "loss_mode": "bypass_mode", "loss_agg_mode": MODES[number % 5],
            "clip_ratio_low": 0.1, "clip_ratio_high": 0.15, "clip_ratio_c": 1.2,
            "global_batch_info": worlds[number // len(BYPASS)],
            "rollout_correction": {"loss_type": loss_type, "rollout_is": level,
                                   "rollout_is_threshold": bound,
                                   "rollout_is_batch_normalize": False, "rollout_rs": criteria,
                                   "rollout_rs_threshold": thresholds}})


def main():
    rng = random.Random(33)
    batches = {"near": Batch(rng, [4, 5, 1, 3], 5, 0.15), "far": Batch(rng, [3, 0, 6], 6, 0.9)}
    worlds = [{}, {"dp_size": 2, "batch_num_tokens": 19, "global_batch_size": 7,
                   "loss_scale_factor": 9}]
    names = ("vanilla", "gspo", "cispo", "sapo", "geo_mean", "gpg", "dro", "dppo_tv", "dppo_kl",
             "clip_cov", "kl_cov")
    cases = []
    for name in names:
        for number in range(10):
            o = {"loss_mode": name, "loss_agg_mode": MODES[number % 5], "clip_ratio_low": 0.2,
                 "clip_ratio_high": 0.28, "clip_ratio_c": 1.5, **EXTRA.get(name, {}),
                 "use_rollout_is_weights": number % 3 == 1, "global_batch_info": worlds[number // 5]}
            scenario = ("near", "far")[number % 2]
            cases.append(case(name, number, scenario, batches[scenario], o))
    cases += bypass_cases(batches["near"], "near", worlds)
    refused = [("vanilla", {"clip_ratio_c": 1.0}), ("dro", {"dro_beta": None})]
    for name, change in refused:
        o = {"loss_mode": name, "loss_agg_mode": "token-mean", "clip_ratio_low": 0.2,
             "clip_ratio_high": 0.28, "clip_ratio_c": 1.5, "use_rollout_is_weights": False,
             "global_batch_info": {}, **change}
        cases.append({"id": f"own/{name}/refused", "fn": name, "scenario": "near", "options": o,
                      "raises": "ValueError"})
    family = {"family": "policy_losses", "set": "committed",
              "source": {"own": "make_policy_losses.py"},
              "scenarios": {name: batch.json() for name, batch in batches.items()}, "cases": cases}
    with open("policy_losses.json", "w", encoding="utf-8") as file:
        json.dump(family, file)
        file.write("\n")


if __name__ == "__main__":
    main()
