#!/usr/bin/env python3
"""Writes advantages.json: every estimator worked out in double precision from its paper's formula,
over whole padded batches, as lists of rows.

Run in this folder: python3 make_advantages.py
"""
import json
import math
import random
import statistics

EPSILON = 1e-6


def tensor(dtype, rows):
    flat = [value for row in rows for value in row]
    return {"dtype": dtype, "shape": [len(rows), len(rows[0])], "data": flat}


def vector(values):
    return {"dtype": "float32", "shape": [len(values)], "data": values}


def rows_of(batch, name):
    height, width = batch[name]["shape"]
    return [batch[name]["data"][i * width:(i + 1) * width] for i in range(height)]


def scenario(rng, groups, width, score):
    """One row per entry of `groups`; rewards sit on the last token of each response."""
    mask, rewards = [], []
    for _ in groups:
        length = rng.randint(1, width)
        mask.append([1] * length + [0] * (width - length))
        rewards.append([0.0] * (length - 1) + [score(rng)] + [0.0] * (width - length))
    return {"token_level_rewards": tensor("float32", rewards),
            "response_mask": tensor("int64", mask), "uid": groups, "atol_hint": 1e-5}


def holes(rng, groups, width):
    """Rewards on every token, holes in the masks, and rows without any trained token."""
    batch = scenario(rng, groups, width, lambda r: 0.0)
    mask = [[int(rng.random() < 0.7) for _ in range(width)] for _ in groups]
    mask[1] = [0] * width
    batch["response_mask"] = tensor("int64", mask)
    batch["token_level_rewards"] = tensor(
        "float32", [[rng.randint(-16, 16) / 8 for _ in range(width)] for _ in groups])
    return batch


def add_arrays(rng, batch):
    """What the greedy response and the policy would give. All exact in float32."""
    height, width = batch["response_mask"]["shape"]

    def random_rows(low, high):
        return tensor("float32", [[rng.randint(low, high) / 64 for _ in range(width)]
                                  for _ in range(height)])

    batch["reward_baselines"] = vector([rng.randint(-64, 64) / 64 for _ in range(height)])
    batch["old_log_probs"] = random_rows(-256, -1)
    batch["sum_pi_squared"] = random_rows(1, 64)
    batch["rollout_is_weights"] = random_rows(16, 128)


def groups_of(batch):
    groups = {}
    for row, uid in enumerate(batch["uid"]):
        groups.setdefault(uid, []).append(row)
    return groups.values()


def spread(batch, by_row):
    return [[value * keep for keep in mask]
            for value, mask in zip(by_row, rows_of(batch, "response_mask"))]


def scores_of(batch):
    return [sum(row) for row in rows_of(batch, "token_level_rewards")]


def by_group(batch, function, scores=None):
    """function(scores of a group, its rows) -> one value per member."""
    scores = scores_of(batch) if scores is None else scores
    out = [0.0] * len(scores)
    for members in groups_of(batch):
        for row, value in zip(members, function([scores[i] for i in members], members)):
            out[row] = value
    return out


def normalise(members, by_std):
    mean = statistics.fmean(members) if len(members) > 1 else 0.0
    std = statistics.stdev(members) if len(members) > 1 else 1.0
    return [(s - mean) / (std + EPSILON) if by_std else s - mean for s in members]


def whiten(batch, values):
    masks = rows_of(batch, "response_mask")
    kept = [v for row, mask in zip(values, masks) for v, keep in zip(row, mask) if keep]
    mean, scale = statistics.fmean(kept), 1 / math.sqrt(statistics.variance(kept) + 1e-8)
    return [[(v - mean) * scale * keep for v, keep in zip(row, mask)]
            for row, mask in zip(values, masks)]


def grpo(batch, options):
    by_std = options["norm_adv_by_std_in_grpo"]
    return spread(batch, by_group(batch, lambda s, _: normalise(s, by_std))), None


def grpo_passk(batch, options):
    def lead(scores, _):
        first, second = sorted(scores)[:-3:-1]
        scale = statistics.stdev(scores) + EPSILON if options["norm_adv_by_std_in_grpo"] else 1
        best = scores.index(first)
        return [(first - second) / scale if i == best else 0.0 for i in range(len(scores))]
    return spread(batch, by_group(batch, lead)), None


def leave_one_out(alone):
    def values(scores, _):
        if len(scores) == 1:
            return [alone * scores[0]]
        return [s - (sum(scores) - s) / (len(scores) - 1) for s in scores]
    return lambda batch, _: (spread(batch, by_group(batch, values)), None)


def opo(batch, _):
    lengths = [sum(mask) for mask in rows_of(batch, "response_mask")]

    def values(scores, members):
        total = sum(lengths[i] for i in members)
        weighted = sum(lengths[i] * s for i, s in zip(members, scores))
        baseline = weighted / total if len(members) > 1 and total else 0.0
        return [s - baseline for s in scores]
    return spread(batch, by_group(batch, values)), None


def gpg(batch, _):
    scores = scores_of(batch)
    alpha = len(scores) / max(1, sum(s != 0 for s in scores))
    centred = by_group(batch, lambda s, _: normalise(s, False))
    return spread(batch, [alpha * value for value in centred]), None


def reinforce_plus_plus(batch, options):
    returns = []
    for rewards, mask in zip(rows_of(batch, "token_level_rewards"), rows_of(batch, "response_mask")):
        kept = [t for t, keep in enumerate(mask) if keep]
        row = [0.0] * len(mask)
        for place, t in enumerate(kept):
            row[t] = sum(options["gamma"] ** (later - place) * rewards[kept[later]]
                         for later in range(place, len(kept)))
        returns.append(row)
    return whiten(batch, returns), returns


def reinforce_plus_plus_baseline(batch, _):
    centred = by_group(batch, lambda s, _: normalise(s, False))
    return whiten(batch, spread(batch, centred)), None


def rewards_to_go(batch):
    return [[sum(r * keep for r, keep in list(zip(rewards, mask))[t:]) for t in range(len(mask))]
            for rewards, mask in zip(rows_of(batch, "token_level_rewards"),
                                     rows_of(batch, "response_mask"))]


def remax(batch, _):
    returns = rewards_to_go(batch)
    baselines = batch["reward_baselines"]["data"]
    return [[g - b * keep for g, keep in zip(row, mask)] for row, b, mask in
            zip(returns, baselines, rows_of(batch, "response_mask"))], returns


def energy(batch, row, positions, use_weights):
    """Squared norm of the score function, summed over these positions."""
    log_probs, squares, weights = (rows_of(batch, name)[row] for name in
                                   ("old_log_probs", "sum_pi_squared", "rollout_is_weights"))
    return sum((1 - 2 * math.exp(log_probs[t]) + squares[t])
               * (weights[t] ** 2 if use_weights else 1) for t in positions)


def token_baseline(turns):
    """`turns`: positions are counted in trained tokens, rows without any are left out."""
    def compute(batch, options):
        masks, returns = rows_of(batch, "response_mask"), rewards_to_go(batch)
        out = [[0.0] * len(mask) for mask in masks]
        trained = [[t for t, keep in enumerate(mask) if keep] for mask in masks]
        for members in groups_of(batch):
            members = [i for i in members if trained[i] or not turns]
            lengths = sorted((len(trained[i]) for i in members), reverse=True)
            for i in members:
                for place, t in enumerate(trained[i]):
                    # The responses that have a trained token at this position, and which it is.
                    here = {j: (trained[j][place] if place < len(trained[j]) else -1) if turns else t
                            for j in members}
                    here = {j: at for j, at in here.items() if at in trained[j]}
                    w = {j: energy(batch, j, [x for x in trained[j] if x <= at],
                                   options["use_rollout_is_weights"]) for j, at in here.items()}
                    baseline = (sum(returns[j][at] * w[j] for j, at in here.items())
                                / (sum(w.values()) + options["epsilon"]))
                    longest = (len(members) > 1 and len(trained[i]) == lengths[0]
                               and lengths[0] > lengths[1])
                    tail = longest and (place if turns else t) >= lengths[1]
                    if len(members) == 1 or (tail and options["handle_zero_tail"]):
                        baseline = 0.0
                    out[i][t] = returns[i][t] - baseline
        return out, returns
    return compute


def gdpo(batch, options):
    weights = options["gdpo_reward_weights"] or [1.0] * len(options["gdpo_reward_keys"])
    total = [0.0] * len(batch["uid"])
    for key, weight in zip(options["gdpo_reward_keys"], weights):
        values = by_group(batch,
                          lambda s, _: normalise(s, options["norm_adv_by_std_in_grpo"]),
                          batch["components"][key]["data"])
        total = [t + weight * v for t, v in zip(total, values)]
    return whiten(batch, spread(batch, total)), None


STD = [{"norm_adv_by_std_in_grpo": on, "epsilon": EPSILON} for on in (True, False)]
TOKEN = [{"epsilon": 1e-8, "handle_zero_tail": tail, "use_rollout_is_weights": weights}
         for tail in (False, True) for weights in (False, True)]
KINDS = {
    "grpo": (grpo, STD), "grpo_vectorized": (grpo, STD), "grpo_passk": (grpo_passk, STD),
    "rloo": (leave_one_out(1.0), [{}]), "rloo_vectorized": (leave_one_out(0.0), [{}]),
    "reinforce_plus_plus": (reinforce_plus_plus, [{"gamma": 1.0}, {"gamma": 0.75}]),
    "reinforce_plus_plus_baseline": (reinforce_plus_plus_baseline, [{}]),
    "remax": (remax, [{}]), "opo": (opo, [{}]), "gpg": (gpg, [{}]),
    "optimal_token_baseline": (token_baseline(turns=False), TOKEN),
    "tir_optimal_token_baseline": (token_baseline(turns=True), TOKEN),
}
GDPO = [("plain", None, True), ("weighted", [0.5, 2.0], True), ("centred", [1.0, 0.25], False)]


def outputs(result):
    advantages, returns = result
    return {"advantages": tensor("float32", advantages),
            "returns": tensor("float32", returns) if returns else "same as advantages"}


def gdpo_cases(rng):
    for name, weights, by_std in GDPO:
        batch = holes(rng, list("abab") + ["c"] * 3, 4)
        batch["components"] = {key: vector([rng.randint(-32, 32) / 16 for _ in batch["uid"]])
                               for key in ("right", "format")}
        options = {"gdpo_reward_keys": ["right", "format"], "gdpo_reward_weights": weights,
                   "norm_adv_by_std_in_grpo": by_std}
        yield {"id": f"own/gdpo/{name}", "fn": "gdpo", "options": options,
               "inputs": {key: batch[key] for key in ("response_mask", "uid", "components")},
               "outputs": outputs(gdpo(batch, options))}


def main():
    rng = random.Random(7)
    scenarios = {
        "binary": scenario(rng, list("aaaabbbb"), 5, lambda r: float(r.randint(0, 1))),
        "interleaved": scenario(rng, list("abcabcabca"), 7, lambda r: r.randint(-8, 8) / 4),
        "alone": scenario(rng, list("abc"), 3, lambda r: r.randint(-8, 8) / 4),
        "equal": scenario(rng, list("aaa"), 2, lambda r: 0.25),
        "holes": holes(rng, list("aaabbcccc") + ["d"], 6),
    }
    for batch in scenarios.values():
        add_arrays(rng, batch)
    cases = []
    for fn, (compute, choices) in KINDS.items():
        for name, batch in scenarios.items():
            for number, options in enumerate(choices):
                case = {"id": f"own/{fn}/{name}/{number}", "fn": fn, "scenario": name,
                        "options": options}
                if fn == "grpo_passk" and min(map(len, groups_of(batch))) < 2:
                    case["raises"] = "ValueError"
                else:
                    case["outputs"] = outputs(compute(batch, options))
                cases.append(case)
    cases.extend(gdpo_cases(rng))
    with open("advantages.json", "w", encoding="utf-8") as file:
        json.dump({"family": "advantages", "set": "committed", "scenarios": scenarios,
                   "cases": cases}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
