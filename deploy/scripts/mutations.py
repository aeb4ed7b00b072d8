#!/usr/bin/env python3
"""Checks the tests of the algorithms: changes one thing at a time and requires that a test fails.

    deploy/scripts/mutations.py [--only TEXT] [--build DIR]
    deploy/scripts/mutations.py --check [--root DIR]    # only whether every text is still there

Each mutation of a formula is made in the source, its test program is built and run, and the source is
put back, also after Ctrl-C and SIGTERM. Prints a table; exit code 1 where a mutation survived. Takes half an hour
on two cores, so it is not part of .ci/run; do not build from the folder meanwhile.
"""
import argparse
import json
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOSSES = "trainer_worker/losses"
ADVANTAGES = "controller/algorithm"
GENERATION = "rollout_worker/generation"
# what: file, text there once, text in its place, test program
MUTATIONS = [
    ("vanilla: the sign of the ratio's term", f"{LOSSES}/policy/vanilla.cc",
     "plain = -advantages * ratio", "plain = advantages * ratio", "policy_loss_committed_golden_test"),
    ("vanilla: min for max", f"{LOSSES}/policy/vanilla.cc",
     "at::max(plain, clipped)", "at::min(plain, clipped)", "policy_loss_committed_golden_test"),
    ("aggregation: the mask is dropped", f"{LOSSES}/token_losses.cc",
     "return FixedSum(valid * mask);", "return FixedSum(values);", "policy_loss_committed_golden_test"),
    ("losses: importance weights are dropped", f"{LOSSES}/policy_loss.cc",
     "term = term * tensors.is_weights;", "term = term * 1.0;", "policy_loss_committed_golden_test"),
    ("bypass: rejected tokens are trained", f"{LOSSES}/policy_loss.cc",
     "graph.tensors.mask = Wrap(correction.mask);", "", "losses_test"),
    ("bypass: weights are dropped", f"{LOSSES}/bypass_loss.cc",
     'correction.weighs() && bypass.loss_type == "reinforce"', "false", "losses_test"),
    ("bypass: rejection takes the entropy, too", f"{LOSSES}/policy_loss.cc",
     "graph.Aggregate(graph.entropy, graph.mask, scale)",
     "graph.Aggregate(graph.entropy, graph.tensors.mask, scale)", "losses_test"),
    ("geo_mean: the samples at hand for all", f"{LOSSES}/policy_loss.cc",
     "scale.batch_samples.value_or(rows)", "rows", "losses_test"),
    ("grpo: n for n - 1", f"{ADVANTAGES}/group_scores.cc",
     "squares / (count - 1.0)", "squares / count", "advantages_committed_golden_test"),
    ("rloo: the mean of all for that of the others", f"{ADVANTAGES}/advantages/rloo.cc",
     "count / (count - 1.0) : 1.0", "1.0 : 1.0", "advantages_committed_golden_test"),
    ("whitening: n for n - 1", f"{ADVANTAGES}/advantage_batch.cc",
     "squares / (count - 1) + 1e-8", "squares / count + 1e-8", "advantages_committed_golden_test"),
    ("KL k3: the sign of the linear term", f"{ADVANTAGES}/kl_penalty.cc",
     "RoundedExp(reverse) - reverse - 1.0f", "RoundedExp(reverse) + reverse - 1.0f", "algorithm_test"),
    ("dynamic sampling keeps what is equal", f"{ADVANTAGES}/group_filter.cc",
     "return value == first;", "return value != first;", "algorithm_test"),
    ("importance weights: no truncation", "common/rollout_correction/importance_weights.cc",
     "return std::min(raw, bounds.upper);", "return raw;", "rollout_correction_test"),
    ("packing: the window one row later", "trainer_worker/forward_backward/packing.cc",
     "const int64_t row = window.RowOf(response);", "const int64_t row = window.RowOf(response) + 1;",
     "trainer_pure_test"),
    ("overlong: a bonus for a penalty", "controller/reward/overlong.cc",
     "std::min(-excess", "std::min(excess", "reward_test"),
    ("lora: the reference policy has the adapters", "trainer_worker/trained_weights/merged_lora.h",
     "reference() override { return &lora_->base(); }", "reference() override { return lora_.get(); }",
     "lora_training_test"),
    ("lora: layers compute with the base", "trainer_worker/trained_weights/merged_lora.h",
     "policy() override { return *lora_; }", "policy() override { return lora_->base(); }", "lora_training_test"),
    ("lora: every rank merges the first rows of B", "trainer_worker/trained_weights/lora_weights.cc",
     "plan_->mine(tensor).row + row;\n  ops_->Merge", "row;\n  ops_->Merge", "lora_training_test"),
    ("lora: gradients of the layer before are left", "trainer_worker/trained_weights/adapter_gradients.cc",
     "weights_->device()->Zero(layer_->data(),", "if (layer == 0) weights_->device()->Zero(layer_->data(),",
     "lora_training_test"),
    ("lora: A's gradient without the scaling", "common/lora/lora_gradients.cc",
     "const float factor = scaling * m.b", "const float factor = m.b", "lora_test"),
    ("lora: the base is rounded before the sum", "common/formats/peft/merge_checkpoint.cc",
     "== Rounding::kPeft ? dtype : stored.dtype", "== Rounding::kServed ? dtype : stored.dtype",
     "lora_committed_golden_test"),
    ("lora: the product of a bf16 adapter is not rounded", "common/lora/merge_by_isa.cc",
     "if (m.rule == MergeRule::kBf16Product)", "if (m.rule != MergeRule::kBf16Product)",
     "lora_committed_golden_test"),
    ("lora: products are not fused", "common/lora/merge_by_isa.cc",
     "__builtin_fmaf(factor, a[j], products[j])", "factor * a[j] + products[j]", "lora_test"),
    ("lora: a negative zero becomes a positive one", "common/lora/merge_by_isa.cc",
     "== 0 ? 0x80000000u : bits", "== 0 ? 0u : bits", "lora_test"),
    ("lora: a GPU merges a negative zero away", "common/weights/cuda/adapter_merge.cu",
     "== 0 ? BitsToFloat(0x80000000u) : value", "== 0 ? 0.0f : value", "weights_cuda_test"),
    ("lora: a GPU adds A's gradient without the scaling", "common/weights/cuda/adapter_gradients.cu",
     "has_rank ? scaling * g.b[", "has_rank ? g.b[", "weights_cuda_test"),
    ("lora: a weight check expects what it reads of a device's adapters", "trainer_worker/shard/shard_array.cc",
     "if (device_->is_host()) return from;", "return from;", "lora_training_test"),
    ("lora: an alpha is assumed", "common/formats/peft/peft_config.cc",
     "if (alpha == config.end() || ", "if (alpha == config.end()) return absl::OkStatus();\n  if (",
     "lora_test"),
    ("dropout: what is compared drops, too", "trainer_worker/forward_backward/mini_batch.cc",
     "use == Use::kTrain && drop_ > 0", "drop_ > 0", "lora_training_test"),
    ("dropout: prompts have each sample's own", "trainer_worker/forward_backward/packing.cc",
     "position < sample.prompt_tokens ? prompt : response", "response", "lora_training_test"),
    ("dropout: q, k and v have one mask", "common/ops/cpu/adapter_rows.cc",
     "adapter.part[part].module,", "adapter.part[0].module,", "ops_test"),
    ("dropout: backward forgets the scale", "common/ops/cpu/backward/linear.cc",
     "product.scale = adapter.dropout->scale();", "", "ops_test"),
    ("dropout: layers that are recomputed drop nothing", "trainer_worker/forward_backward/layer_loop.cc",
     "const LayerWeights view = View(group, layer);",
     "const LayerWeights view = ViewLayer(spec, layout, group, layer);", "lora_training_test"),
    ("lora: ends of names off a dot", "common/lora/lora_spec.cc",
     'absl::EndsWith(module, "." + text_)', "absl::EndsWith(module, text_)", "lora_test"),
    ("scheduler: a block that others hold is free", f"{GENERATION}/scheduler.cc",
     "if (--holders_[static_cast<size_t>(block)] == 0) free_", "--holders_[static_cast<size_t>(block)];\n    free_",
     "rollout_core_test"),
    ("scheduler: a long prefill stalls decoding", f"{GENERATION}/scheduler.cc",
     "*budget - later, preempted", "*budget, preempted", "rollout_core_test"),
    ("scheduler: the first chunk of a prompt must fit", f"{GENERATION}/scheduler.cc",
     "MissingBlocks(*sequence, sequence->length())", "MissingBlocks(*sequence, sequence->computed + 1)",
     "rollout_core_test"),
    ("scheduler: the oldest gives way", f"{GENERATION}/scheduler.cc",
     "queue.rbegin(); it != queue.rend()", "queue.begin(); it != queue.end()", "rollout_core_test"),
    ("scheduler: a shared block is written to", f"{GENERATION}/scheduler.cc",
     "plan_.copies.push_back({blocks[first], blocks.back()});", "", "rollout_core_test"),
    ("scheduler: the response's block is shared, too", f"{GENERATION}/scheduler.cc",
     "group.prompt_tokens / kKvBlockTokens;", "KvBlocksFor(group.prompt_tokens);", "rollout_core_test"),
    ("scheduler: computed is kept without its blocks", f"{GENERATION}/scheduler.cc",
     "sequence->computed = 0;", "", "rollout_core_test"),
    ("scheduler: decoding counts as prefill", f"{GENERATION}/scheduler.cc",
     "if (sequence->length() == came_with) prefill", "prefill", "rollout_generation_test"),
    ("draws: one uniform for a whole response", f"{GENERATION}/model_runner.cc",
     "static_cast<uint64_t>(sequence.length())", "uint64_t{0}", "rollout_generation_test"),
    ("samples: one segment over a change of weights", f"{GENERATION}/sequence.cc",
     "sample.segments.back().weight_version == sequence.versions[i];", "true;", "rollout_generation_test"),
    ("samples: what was sent counts as generated here", f"{GENERATION}/sequence.cc",
     "sequence->carried = static_cast<int64_t>(continuation.tokens.size());", "", "rollout_generation_test"),
    ("stop: one token above max_tokens", f"{GENERATION}/sequence.cc",
     "if (left_ <= 0)", "if (left_ < 0)", "rollout_core_test"),
    ("stop: no text over two tokens", f"{GENERATION}/sequence.cc",
     "tail_.size() - (longest_stop_ - 1)", "tail_.size()", "rollout_core_test"),
    ("stop: a round's last token hides the end", f"{GENERATION}/sequence.cc",
     "if (left_ <= 0) return FinishReason::kLength;\n  return cut",
     "if (left_ <= 0 && !cut) return FinishReason::kLength;\n  return cut", "rollout_core_test"),
]


def outdated(root, mutations):
    """A line for each mutation whose text is not in its file exactly once."""
    lines = []
    for name, file, text, _, _ in mutations:
        path = root / file
        if not path.is_file():
            lines.append(f"{name}: {file} is not there")
        elif (count := path.read_text().count(text)) != 1:
            lines.append(f"{name}: {file} has \"{text}\" {count} times, not once")
    return lines


def programs_of(build):
    """By the name of a test, the program that has it."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True,
                            text=True, check=True).stdout
    return {test["name"]: pathlib.Path(test["command"][0]).name
            for test in json.loads(listed)["tests"] if "command" in test}


def fails(build, test, program):
    """Whether the test fails, or its program is not even built any more."""
    made = subprocess.run(["ninja", "-C", build, program], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        sys.exit(f"{program} is not built:\n{made.stdout[-3000:]}")
    run = subprocess.run(["ctest", "--test-dir", build, "--no-tests=error", "-R", f"^{test}$"], cwd=ROOT,
                         capture_output=True, check=False)
    return run.returncode != 0


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of what puts the source back
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="mutations whose name contains TEXT")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--check", action="store_true", help="build nothing: is every text in its file once?")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="of the sources that --check reads")
    arguments = parser.parse_args()
    chosen = [row for row in MUTATIONS if arguments.only in row[0]]
    if not chosen:
        sys.exit(f"no mutation's name contains \"{arguments.only}\": nothing was checked")
    if lines := outdated(arguments.root if arguments.check else ROOT, chosen):
        sys.exit("\n".join([*lines, "mend the list in deploy/scripts/mutations.py"]))
    if arguments.check:
        print(f"the texts of {len(chosen)} mutations are in their files")
        return 0
    programs = programs_of(arguments.build)
    for test in sorted({row[4] for row in chosen}):
        if fails(arguments.build, test, programs[test]):
            sys.exit(f"{test} fails without any mutation")
    survived = 0
    for name, file, text, other, test in chosen:
        path = ROOT / file
        source = path.read_text()
        try:
            path.write_text(source.replace(text, other))
            found = fails(arguments.build, test, programs[test])
        finally:
            path.write_text(source)
        survived += not found
        print(f"{name:48} {'found' if found else 'SURVIVED':9} {test}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} mutations found")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
