#!/usr/bin/env python3
"""Writes golden vectors with verl's own functions: policy_losses, kl_penalty and advantages.

Nothing here computes an expected value: inputs are seeded random numbers, and every output is what a
function of verl 0.9.1 returned in float32 on the CPU. A case in which verl raises is recorded as `raises`.

verl is installed without its dependencies (vLLM, flash-attention, Ray clusters ...), which its formulas do
not need, beside the few packages that its modules import:

    python3.11 -m venv verl-venv
    verl-venv/bin/pip install torch==2.11.0 tensordict==0.10.0 transformers==5.9.0 \\
        numpy omegaconf codetiming cloudpickle ray psutil packaging datasets pillow
    verl-venv/bin/pip install --no-deps verl==0.9.1
    verl-venv/bin/python tests/golden/verl/make_vectors.py tests/golden/verl

Writes NAME.json.gz into the folder, prints the SHA-256 of each file and of its JSON, and depends on no
clock and no unseeded chance. Another CPU or PyTorch may change last bits of floats (its exp and sums
choose their code by the CPU), so the digests hold for one machine and the values for all.
"""
import gzip
import hashlib
import io
import itertools
import json
import math
import pathlib
import sys

import numpy as np
import torch
import verl
from tensordict import TensorDict
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn, kl_penalty
from verl.utils import tensordict_utils
from verl.utils.metric import Metric
from verl.workers.config import ActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

SEED = 20260
AGGREGATIONS = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean",
                "seq-mean-token-sum-norm")
CLIPS = {"usual": (0.2, 0.2), "asymmetric": (0.2, 0.28), "zero": (0.0, 0.0), "large": (1000.0, 1000.0)}
# The options that a loss has beyond the clip. clip_cov draws tokens at random from its candidates: with a
# ratio of 1 it takes all of them, and chance has no part.
LOSSES = {
    "vanilla": {}, "gspo": {}, "cispo": {}, "gpg": {}, "geo_mean": {}, "dppo_tv": {}, "dppo_kl": {},
    "sapo": {"tau_pos": 1.5, "tau_neg": 0.75}, "dro": {"dro_beta": 0.3},
    "clip_cov": {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.02, "clip_cov_ub": 5.0},
    "kl_cov": {"kl_cov_ratio": 0.4, "ppo_kl_coef": 0.5},
}
OF_POLICY_LOSS = ("clip_cov_ratio", "clip_cov_lb", "clip_cov_ub", "kl_cov_ratio", "ppo_kl_coef", "dro_beta")
KL_TYPES = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")
KL_TYPES = KL_TYPES + tuple(name + "+" for name in KL_TYPES)


# -- the files' format --------------------------------------------------------------------------------

def number(value):
    """A float32 in its shortest digits; a number that JSON lacks as a string."""
    if math.isfinite(value):
        return float(str(np.float32(value)))
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def tensor(value):
    value = value.detach()
    flat = value.reshape(-1).tolist()
    name = str(value.dtype).removeprefix("torch.")
    data = [number(x) for x in flat] if value.is_floating_point() else [int(x) for x in flat]
    return {"dtype": name, "shape": list(value.shape), "data": data}


def plain(metrics):
    """verl's metrics as numbers: floats, tensors and its class Metric of one value."""
    result = {}
    for name, value in metrics.items():
        if isinstance(value, Metric):
            value = value.values[0]
        result[name] = number(float(value))
    return result


def case(identity, fn, options, compute, **place):
    """A case with what `compute` returns, or with the type of what it raises."""
    entry = {"id": identity, "fn": fn, "options": options, **place}
    try:
        entry["outputs"] = compute()
    except Exception as error:  # whatever verl raises is its answer to the input
        entry["raises"] = type(error).__name__
    return entry


def write(folder, family, cases, scenarios):
    document = {"family": family, "set": "verl", "seed": SEED,
                "source": {"verl": verl.__version__, "torch": torch.__version__.split("+")[0]},
                "scenarios": scenarios, "cases": cases}
    text = json.dumps(document, separators=(",", ":")).encode() + b"\n"
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as stream:
        stream.write(text)
    path = folder / f"{family}.json.gz"
    path.write_bytes(packed.getvalue())
    raising = sum("raises" in c for c in cases)
    print(f"{path.name}: {len(cases)} cases ({raising} raise), {len(packed.getvalue())} bytes")
    print(f"  sha256 of the file {hashlib.sha256(packed.getvalue()).hexdigest()}")
    print(f"  sha256 of its JSON {hashlib.sha256(text).hexdigest()}")


# -- batches ------------------------------------------------------------------------------------------

def batch(chance, mask, old, now, most=0.0):
    """`old` and `now` make log-probs of the mask's shape; all are at most `most`."""
    mask = torch.tensor(mask, dtype=torch.bool)

    def normal(scale=1.0):
        return torch.randn(mask.shape, generator=chance) * scale
    old_log_prob = old(mask.shape).clamp(max=most)
    log_prob = now(old_log_prob).clamp(max=most)
    return {"old_log_prob": old_log_prob, "log_prob": log_prob, "advantages": normal(), "response_mask": mask,
            "rollout_is_weights": torch.rand(mask.shape, generator=chance) * 1.4 + 0.4,
            "ref_log_prob": (log_prob + normal(0.3)).clamp(max=most)}


def padded(values):
    """With zeros where nothing counts, as verl pads responses: a row without tokens is all zeros."""
    return {key: value * values["response_mask"] if value.is_floating_point() else value
            for key, value in values.items()}


def loss_batches():
    """What rows may be: ordinary, none, one token, masked, almost certain, almost impossible.

    Log-probs above 0 are no probabilities, and Tandem refuses them where samples come in; the formulas take
    them, and some kernels round to such values.
    """
    chance = torch.Generator().manual_seed(SEED)

    def uniform(low, high):
        return lambda shape: torch.rand(shape, generator=chance) * (high - low) + low

    def near(spread):
        return lambda old: old + torch.randn(old.shape, generator=chance) * spread

    def powers(shape):  # -10^-7 to -10^-1, and one that is exactly 0
        values = -10 ** uniform(-7, -1)(shape)
        values[0, 0] = 0
        return values

    def apart(old):  # from -30 to about -0.5 and back
        return torch.where(old < -10, uniform(-1, -0.1)(old.shape), uniform(-30.5, -29.5)(old.shape))

    def ends(shape):
        values = uniform(-30.5, -29.5)(shape)
        values[:, ::2] = uniform(-1, -0.1)(values[:, ::2].shape)
        return values
    usual = uniform(-3, -0.05)
    return {
        "usual": batch(chance, [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0]],
                       usual, near(0.3)),
        "masked_row": batch(chance, [[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]], usual, near(0.3)),
        "empty_row": padded(batch(chance, [[0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], usual, near(0.3))),
        "one_token_rows": batch(chance, [[1, 0, 0, 0], [0, 0, 1, 0]], usual, near(0.3)),
        "one_token": batch(chance, [[1]], usual, near(0.3)),
        "one_row": batch(chance, [[1, 1, 1, 1]], usual, near(0.3)),
        "all_masked": batch(chance, [[0, 0, 0, 0], [0, 0, 0, 0]], usual, near(0.3)),
        "near_zero": batch(chance, [[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]], powers, near(0.01)),
        "deep": batch(chance, [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], uniform(-30.5, -29.5), near(0.3)),
        "far_apart": batch(chance, [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], ends, apart),
        "above_zero": batch(chance, [[1, 1, 1, 1], [1, 1, 1, 0]], uniform(-0.2, 0.2), near(0.1), most=1.0),
    }


# -- policy losses ------------------------------------------------------------------------------------

def actor_config(options, **more):
    own = {key: options[key] for key in OF_POLICY_LOSS if key in options}
    if "rollout_correction" in options:
        own["rollout_correction"] = options["rollout_correction"]
    direct = {key: options[key] for key in ("tau_pos", "tau_neg") if key in options}
    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio=0.2,
                         clip_ratio_low=options["clip_ratio_low"], clip_ratio_high=options["clip_ratio_high"],
                         clip_ratio_c=options["clip_ratio_c"], loss_agg_mode=options["loss_agg_mode"],
                         policy_loss=PolicyLossConfig(loss_mode=options["loss_mode"], **own), **direct, **more)
    config.global_batch_info.update(options.get("global_batch_info", {}))
    return config


def loss_options(name, aggregation, clip, **more):
    low, high = CLIPS[clip]
    return {"loss_mode": name, "loss_agg_mode": aggregation, "clip_ratio_low": low, "clip_ratio_high": high,
            "clip_ratio_c": 3.0, "use_rollout_is_weights": False, "global_batch_info": {},
            **LOSSES.get(name, {}), **more}


def loss_case(batches, scenario, label, options):
    values = batches[scenario]

    def compute():
        log_prob = values["log_prob"].clone().requires_grad_(True)
        loss, metrics = get_policy_loss_fn(options["loss_mode"])(
            old_log_prob=values["old_log_prob"], log_prob=log_prob, advantages=values["advantages"],
            response_mask=values["response_mask"], loss_agg_mode=options["loss_agg_mode"],
            config=actor_config(options),
            rollout_is_weights=values["rollout_is_weights"] if options["use_rollout_is_weights"] else None)
        loss.backward()
        return {"loss": tensor(loss), "metrics": plain(metrics), "grad_log_prob": tensor(log_prob.grad)}
    name = options["loss_mode"]
    return case(f"{name}/{scenario}/{label}", name, options, compute, scenario=scenario)


def cross_product(batches):
    for name, scenario, aggregation, clip in itertools.product(LOSSES, batches, AGGREGATIONS, CLIPS):
        yield loss_case(batches, scenario, f"{aggregation}/{clip}", loss_options(name, aggregation, clip))


def weighted_and_global(batches):
    """Importance weights, and the divisors of a global batch of which this is one rank's part."""
    world = {"dp_size": 2, "batch_num_tokens": 31, "global_batch_size": 9, "loss_scale_factor": 7}
    for name, scenario, aggregation in itertools.product(LOSSES, ("usual", "masked_row", "far_apart"), AGGREGATIONS):
        yield loss_case(batches, scenario, f"{aggregation}/weights",
                        loss_options(name, aggregation, "asymmetric", use_rollout_is_weights=True))
        yield loss_case(batches, scenario, f"{aggregation}/global",
                        loss_options(name, aggregation, "usual", global_batch_info=world))


def refused_losses(batches):
    """Options that verl raises on."""
    for label, name, more in (
            ("dual_clip_of_1", "vanilla", {"clip_ratio_c": 1.0}), ("dual_clip_of_half", "vanilla", {"clip_ratio_c": 0.5}),
            ("no_beta", "dro", {"dro_beta": None}), ("beta_of_0", "dro", {"dro_beta": 0.0}),
            ("negative_beta", "dro", {"dro_beta": -0.1}), ("ratio_of_0", "clip_cov", {"clip_cov_ratio": 0.0}),
            ("ratio_of_0", "kl_cov", {"kl_cov_ratio": 0.0}), ("negative_ratio", "kl_cov", {"kl_cov_ratio": -0.1}),
            ("ratio_above_1", "kl_cov", {"kl_cov_ratio": 1.5})):
        yield loss_case(batches, "usual", label, loss_options(name, "token-mean", "usual", **more))
    for name, aggregation in itertools.product(("vanilla", "gspo", "dro"), AGGREGATIONS):
        if aggregation != "token-sum":
            yield loss_case(batches, "usual", f"{aggregation}/ranks_without_counts",
                            loss_options(name, aggregation, "usual", global_batch_info={"dp_size": 2}))
    yield loss_case(batches, "usual", "unknown_aggregation", loss_options("vanilla", "mean", "usual"))


BYPASS_CORRECTIONS = {
    "none": {}, "token": {"rollout_is": "token"}, "sequence": {"rollout_is": "sequence"},
    "normalized": {"rollout_is": "token", "rollout_is_batch_normalize": True},
    "token_k1": {"rollout_is": "token", "rollout_rs": "token_k1", "rollout_rs_threshold": "0.6_1.5"},
    "seq_mean_k3": {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": "0.05"},
}
REFUSED_CORRECTIONS = {
    "no_threshold": {"rollout_rs": "token_k1", "rollout_rs_threshold": None},
    "bad_threshold": {"rollout_rs": "token_k1", "rollout_rs_threshold": "low_high"},
    "unknown_weights": {"rollout_is": "nonsense"},
    "unknown_rejection": {"rollout_rs": "nonsense", "rollout_rs_threshold": "1.0"},
}


def bypass_losses(batches):
    for loss_type, scenario in itertools.product(("ppo_clip", "reinforce"), batches):
        # Every correction with every kind of rows; aggregations and clips take turns, as they are the losses' own.
        corrections = BYPASS_CORRECTIONS | (REFUSED_CORRECTIONS if scenario == "usual" else {})
        turns = zip(corrections.items(), itertools.cycle(AGGREGATIONS), itertools.cycle(CLIPS))
        for (label, correction), aggregation, clip in turns:
            complete = {"loss_type": loss_type, "rollout_is": None, "rollout_is_threshold": 2.0,
                        "rollout_is_batch_normalize": False, "rollout_rs": None, "rollout_rs_threshold": None,
                        **correction}
            yield loss_case(batches, scenario, f"{loss_type}/{label}/{aggregation}/{clip}",
                            loss_options("bypass_mode", aggregation, clip, rollout_correction=complete))


# -- the composed loss of the actor -------------------------------------------------------------------

def packed_batches(batches):
    """The scenarios as the actor has them: prompts and responses of all rows one after another."""
    chance = torch.Generator().manual_seed(SEED + 1)
    result = {}
    for name in ("usual", "one_token", "deep", "far_apart"):
        values = batches[name]
        mask = values["response_mask"].long()
        # A response reaches to its last counted token; holes before it stay masked.
        responses = [int(row.nonzero().max()) + 1 for row in mask]
        prompts = [int(x) for x in torch.randint(1, 4, (len(responses),), generator=chance)]
        log_probs, width = [], mask.shape[1]
        inside = torch.arange(width) < torch.tensor(responses).unsqueeze(1)
        for row, (prompt, response) in enumerate(zip(prompts, responses)):
            before = -torch.rand(prompt - 1, generator=chance) * 3
            after = -torch.rand(1, generator=chance) * 3
            log_probs += [before, values["log_prob"][row, :response], after]
        packed = torch.cat(log_probs)
        result["packed_" + name] = {
            "prompt_lens": prompts, "response_lens": responses, "log_probs_packed": packed,
            "entropy_packed": torch.rand(packed.shape, generator=chance) * 2, "response_mask": mask,
            "old_log_probs": values["old_log_prob"] * inside, "ref_log_prob": values["ref_log_prob"] * inside,
            "advantages": values["advantages"] * inside}
    return result


def actor_data(values, options):
    mask, prompts = values["response_mask"], values["prompt_lens"]
    rows, width, longest = mask.shape[0], mask.shape[1], max(prompts)
    columns = torch.arange(longest)
    before = columns >= longest - torch.tensor(prompts).unsqueeze(1)
    after = torch.arange(width) < torch.tensor(values["response_lens"]).unsqueeze(1)
    data = TensorDict({"prompts": torch.zeros(rows, longest, dtype=torch.long),
                       "responses": torch.zeros(rows, width, dtype=torch.long),
                       "attention_mask": torch.cat([before, after], dim=1).long(),
                       **{key: values[key] for key in ("response_mask", "old_log_probs", "ref_log_prob", "advantages")}},
                      batch_size=rows)
    for key in ("dp_size", "batch_num_tokens", "global_batch_size"):
        tensordict_utils.assign_non_tensor_data(data, key, options[key])
    return data


def composed_case(packed, scenario, label, options):
    values = packed[scenario]

    def compute():
        log_probs = values["log_probs_packed"].clone().requires_grad_(True)
        entropy = values["entropy_packed"].clone().requires_grad_(True)
        config = actor_config(options, use_kl_loss=options["use_kl_loss"], kl_loss_coef=options["kl_loss_coef"],
                              kl_loss_type=options["kl_loss_type"], entropy_coeff=options["entropy_coeff"])
        loss, metrics = ppo_loss(config, {"log_probs": log_probs, "entropy": entropy}, actor_data(values, options))
        loss.backward()
        return {"loss": tensor(loss), "metrics": plain(metrics), "grad_log_probs": tensor(log_probs.grad),
                "grad_entropy": tensor(entropy.grad)}
    return case(f"ppo_loss/{scenario}/{label}", "ppo_loss", options, compute, scenario=scenario)


def composed_losses(packed):
    turns = itertools.cycle(CLIPS)  # four, and five aggregations: each meets each
    for name, kl_type, scenario, aggregation in itertools.product(LOSSES, KL_TYPES, packed, AGGREGATIONS):
        clip = next(turns)
        options = {key: value for key, value in loss_options(name, aggregation, clip).items()
                   if key not in ("global_batch_info", "use_rollout_is_weights")}
        options |= {"use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": kl_type, "entropy_coeff": 0.02,
                    "dp_size": 1, "batch_num_tokens": None, "global_batch_size": None}
        yield composed_case(packed, scenario, f"{name}/{kl_type}/{aggregation}/{clip}", options)
        if scenario == "packed_usual" and kl_type == "k3+":
            world = {"dp_size": 2, "batch_num_tokens": 31, "global_batch_size": 9}
            yield composed_case(packed, scenario, f"{name}/{kl_type}/{aggregation}/global", {**options, **world})
            yield composed_case(packed, scenario, f"{name}/{aggregation}/entropy_alone", {**options, "use_kl_loss": False})


# -- KL estimators ------------------------------------------------------------------------------------

def kl_cases(batches):
    for scenario, name in itertools.product(batches, KL_TYPES + ("full", "nonsense")):
        values = batches[scenario]

        def compute():
            log_prob = values["log_prob"].clone().requires_grad_(True)
            value = kl_penalty(log_prob, values["ref_log_prob"], name)
            value.sum().backward()
            return {"value": tensor(value), "grad_logprob": tensor(log_prob.grad)}
        inputs = {"logprob": tensor(values["log_prob"]), "ref_logprob": tensor(values["ref_log_prob"])}
        yield case(f"{scenario}/{name}", "kl_penalty", {"kl_penalty": name}, compute, inputs=inputs)


# -- advantages ---------------------------------------------------------------------------------------

# Groups of the rows, mask, and scores (None: random).
ADVANTAGE_ROWS = {
    "groups": ("aabbb", [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]], None),
    "interleaved": ("abab", [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], None),
    "one_row": ("a", [[1, 1, 1, 1]], None),
    "one_token": ("a", [[1]], None),
    "one_token_each": ("aabb", [[1], [1], [1], [1]], None),
    "groups_of_one": ("abc", [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], None),
    "group_and_one": ("aaab", [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0]], None),
    "row_without_tokens": ("aabb", [[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0]], None),
    "one_of_pair_without_tokens": ("aab", [[0, 0, 0], [1, 1, 0], [0, 0, 0]], None),
    "group_without_tokens": ("aabb", [[0, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 0]], None),
    "no_tokens": ("aabb", [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]], None),
    "one_token_in_all": ("aabb", [[0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]], None),
    "two_tokens_in_all": ("aabb", [[0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0]], None),
    "holes": ("aab", [[1, 0, 1, 1, 0], [0, 1, 1, 0, 0], [1, 1, 0, 0, 1]], None),
    "equal_scores": ("aabb", [[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]], [0.5, 0.5, 1.0, 1.0]),
    "zero_scores": ("aabb", [[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]], [0.0, 0.0, 0.0, 0.0]),
    "binary_scores": ("aaaa", [[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]], [1.0, 0.0, 0.0, 1.0]),
}


def advantage_batches():
    chance = torch.Generator().manual_seed(SEED + 2)
    result = {}
    for name, (groups, mask, scores) in ADVANTAGE_ROWS.items():
        mask = torch.tensor(mask)

        def uniform(low, high, shape=mask.shape):
            return torch.rand(shape, generator=chance) * (high - low) + low
        rewards = torch.zeros(mask.shape)
        # A score lies on the last counted token; where there is none, on the first slot, which counts nothing.
        last = [int(row.nonzero().max()) if row.any() else 0 for row in mask]
        rewards[torch.arange(len(groups)), last] = torch.tensor(scores) if scores else uniform(-1.5, 1.5, len(groups))
        old_log_probs = uniform(-3, -0.05)
        result[name] = {"token_level_rewards": rewards, "response_mask": mask, "uid": list(groups),
                        "reward_baselines": uniform(-1, 1, len(groups)), "old_log_probs": old_log_probs,
                        "sum_pi_squared": torch.exp(2 * old_log_probs) + uniform(0, 0.1),
                        "rollout_is_weights": uniform(0.4, 1.8), "atol_hint": 1e-5}
    return result


def advantage_options():
    """Estimators with the options that each has in verl."""
    for name in ("grpo", "grpo_vectorized", "grpo_passk"):
        for by_std in (True, False):
            yield name, {"norm_adv_by_std_in_grpo": by_std, "epsilon": 1e-6}
    for name in ("rloo", "rloo_vectorized", "reinforce_plus_plus_baseline", "opo", "gpg", "remax"):
        yield name, {}
    for gamma in (1.0, 0.9):
        yield "reinforce_plus_plus", {"gamma": gamma}
    for name, weights, zero_tail in itertools.product(("optimal_token_baseline", "tir_optimal_token_baseline"),
                                                      (False, True), (False, True)):
        yield name, {"use_rollout_is_weights": weights, "handle_zero_tail": zero_tail, "epsilon": 1e-8}


def advantage_arguments(name, values, options):
    arguments = {"token_level_rewards": values["token_level_rewards"].clone(),
                 "response_mask": values["response_mask"]}
    given = {key: value for key, value in options.items() if key in ("epsilon", "handle_zero_tail")}
    if name == "reinforce_plus_plus":
        return {**arguments, "config": AlgoConfig(gamma=options["gamma"])}
    if name == "remax":
        return {**arguments, "reward_baselines": values["reward_baselines"]}
    arguments["index"] = np.array(values["uid"], dtype=object)
    if name == "grpo_passk":
        arguments["config"] = AlgoConfig(norm_adv_by_std_in_grpo=options["norm_adv_by_std_in_grpo"])
    elif "norm_adv_by_std_in_grpo" in options:
        given["norm_adv_by_std_in_grpo"] = options["norm_adv_by_std_in_grpo"]
    if "handle_zero_tail" in options:
        arguments |= {key: values[key] for key in ("old_log_probs", "sum_pi_squared")}
        arguments["rollout_is_weights"] = values["rollout_is_weights"] if options["use_rollout_is_weights"] else None
    return {**arguments, **given}


def estimates(pair):
    advantages, returns = pair
    same = torch.equal(advantages.nan_to_num(), returns.nan_to_num()) and \
        torch.equal(advantages.isnan(), returns.isnan())
    return {"advantages": tensor(advantages), "returns": "same as advantages" if same else tensor(returns)}


def advantage_cases(batches):
    for scenario, values in batches.items():
        for number_of_options, (name, options) in enumerate(advantage_options()):
            def compute():
                return estimates(get_adv_estimator_fn(name)(**advantage_arguments(name, values, options)))
            yield case(f"{scenario}/{name}/{number_of_options}", name, options, compute, scenario=scenario)
        yield from gdpo_cases(scenario, values)


def gdpo_cases(scenario, values):
    chance = torch.Generator().manual_seed(SEED + 3)
    mask, keys = values["response_mask"], ["reward_0", "reward_1"]
    rows = mask.shape[0]
    attention = torch.cat([torch.ones(rows, 2, dtype=torch.long), (mask.flip(1).cumsum(1).flip(1) > 0).long()], dim=1)
    components = {"reward_0": torch.randint(0, 2, (rows,), generator=chance).float(),
                  "reward_1": torch.rand(rows, generator=chance) * 2 - 1}
    inputs = {"response_mask": tensor(mask), "uid": values["uid"], "attention_mask": tensor(attention),
              "prompt_length": 2, "components": {key: tensor(value) for key, value in components.items()}}
    for weights, by_std in itertools.product((None, [2.0, 0.5]), (True, False)):
        options = {"gdpo_reward_keys": keys, "gdpo_reward_weights": weights, "norm_adv_by_std_in_grpo": by_std}

        def compute():
            return estimates(get_adv_estimator_fn("gdpo")(
                token_level_rewards=values["token_level_rewards"], response_mask=mask,
                index=np.array(values["uid"], dtype=object), norm_adv_by_std_in_grpo=by_std,
                config={"gdpo_reward_keys": keys, "gdpo_reward_weights": weights},
                non_tensor_batch={key: value.numpy() for key, value in components.items()},
                batch={"prompts": torch.zeros(rows, 2), "attention_mask": attention}))
        yield case(f"{scenario}/gdpo/{'weighted' if weights else 'plain'}/{by_std}", "gdpo", options, compute,
                   inputs=inputs)


def as_json(scenarios):
    return {name: {key: tensor(value) if isinstance(value, torch.Tensor) else value for key, value in fields.items()}
            for name, fields in scenarios.items()}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if verl.__version__ != "0.9.1":
        sys.exit(f"verl is {verl.__version__}; these vectors are 0.9.1's: pip install --no-deps verl==0.9.1")
    torch.set_num_threads(1)
    torch.manual_seed(SEED)  # clip_cov permutes its candidates, all of which it then takes
    folder = pathlib.Path(sys.argv[1])
    batches, rows = loss_batches(), advantage_batches()
    packed = packed_batches(batches)
    losses = [*cross_product(batches), *weighted_and_global(batches), *refused_losses(batches),
              *bypass_losses(batches), *composed_losses(packed)]
    write(folder, "policy_losses", losses, as_json(batches) | as_json(packed))
    write(folder, "kl_penalty", list(kl_cases(batches)), {})
    write(folder, "advantages", list(advantage_cases(rows)), as_json(rows))


if __name__ == "__main__":
    main()
