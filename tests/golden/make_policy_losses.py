#!/usr/bin/env python3
"""Writes policy_losses.json: every policy loss as a closed formula in double precision, gradients by
central differences. What a loss takes as a constant (a stopped gradient) is held fixed meanwhile.

Run in this folder: python3 make_policy_losses.py
"""
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
