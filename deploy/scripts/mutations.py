#!/usr/bin/env python3
"""Tests the tests: changes one thing of the source at a time and requires that a test fails.

    deploy/scripts/mutations.py [--only TEXT]                    # the mutations that are listed in this script
    deploy/scripts/mutations.py --room ROOM [--sample N] [--seed N] [--files N]   # some of all small changes to a room
    deploy/scripts/mutations.py --turn [--sample N] [--seconds N] [--floor F]   # those that this commit draws, of one room
    deploy/scripts/mutations.py --room kernels          # each barrier of the CUDA kernels left out, on the emulator
    deploy/scripts/mutations.py --check [--root DIR]    # only whether every listed text is still there

Each mutation is made in a copy of the tree (--work), never in the tree itself; the smallest test program that may
notice it is built there and run, then the next one of the room. The copy is configured as --build is, and what
ccache knows is not compiled again. Prints a line for each mutation and sums; exit code 1 where one survived: then a
test is missing, or the change changes nothing that can be seen. Two cores take a quarter of an hour to build the
copy without a cache, and 5 to 15 seconds for a mutation. .ci/run therefore looks at a few of them (--turn) once its
build has filled the cache: only what is changed is compiled for it.

A test that takes five times as long as without the mutation, and at least ten seconds, is stopped: the mutation counts as
killed, and its line says so.

--files N: of the first N files that are drawn alone, as each that is changed must be compiled (default: 4 with --turn, else all).
--seconds N: after N seconds everything has ended. What was being compiled or tested then has no verdict, and is named.
--floor F: the part of the mutations that are to be killed (default: 1, all); a few of any sample change nothing
that can be seen. Fewer than three that compile fail too. With --turn the floor is judged from eight on: fewer are named, as a
slow machine is no fault of the tests.

Barriers need no copy: the emulator leaves one out that TANDEM_EMULATED_SKIP names, so the tests of --build are run,
once they are built, and a mutation takes as long as a test.
"""
import argparse
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from ci_turns import draw, git, note  # noqa: E402
from mutation_builds import Copy, End, LeftOut, OutOfTime  # noqa: E402
from mutation_rooms import KERNELS_ROOM, ROOMS, barriers, sampled, shuffled  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOSSES = "trainer_worker/losses"
ADVANTAGES = "controller/algorithm"
GENERATION = "rollout_worker/generation"
FEWEST = 3  # of which a floor tells anything
FEWEST_IN_TURN = 8  # where what is drawn must not fail by chance: see tests/deploy/scripts/mutations_test.py
FILES_IN_TURN = 4
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


def listed(only):
    """(name, file, the file's mutated text, tests) of each listed mutation."""
    for name, file, text, other, test in MUTATIONS:
        if only in name:
            yield name, file, (ROOT / file).read_text().replace(text, other), [test]


def look_at(build, mutations):
    """Prints a line for each mutation until the end comes; the number of each verdict."""
    counts = {"killed": 0, "SURVIVED": 0, "not compiled": 0}
    for done, (name, file, text, tests) in enumerate(mutations):
        began = build.end.now()
        try:
            verdict, how = build.verdict(file, text, tests)
        except OutOfTime as stopped:
            note(f"mutations: {done} of {len(mutations)} were tried in the time there is: {stopped} for {name}")
            break
        counts[verdict] += 1
        if verdict == "SURVIVED":
            note(f"mutations: no test fails with this change: {name}")
        print(f"{verdict:12} {name:70} {how} {build.end.now() - began:.0f}s", flush=True)
    return counts


def too_few(title, counts, floor, in_turn=False):
    """A line about what the verdicts of a title lack, or ""."""
    killed, of = counts["killed"], counts["killed"] + counts["SURVIVED"]
    if in_turn and of < FEWEST_IN_TURN:
        note(f"mutations: {of} of the room {title} were tried, and fewer than {FEWEST_IN_TURN} decide nothing")
        return ""
    if floor < 1 and of < FEWEST:
        return f"{title}: {of} mutations were tried, and fewer than {FEWEST} tell nothing: is the machine too slow for --seconds?"
    if killed < floor * of:
        return (f"{title}: {killed} of {of} mutations were killed, and at least {floor:.0%} are to be: add tests that fail with "
                "the changes that survived")
    return ""


def drawn_by_commit():
    """(room, seed) of this run of .ci/run."""
    rooms = sorted([*ROOMS, KERNELS_ROOM])
    drawn = draw(len(rooms), ROOT)
    room = rooms[drawn.turn]
    what = "barriers of the CUDA kernels" if room == KERNELS_ROOM else f"changes to the room {room}"
    note(f"mutations: {drawn.text()}: a few of the {what}; {', '.join(one for one in rooms if one != room)} not "
         "looked at: another turn by design")
    return room, os.environ.get("TANDEM_CI_TURN") or (git(ROOT, "rev-parse", "HEAD") or [""])[0]


def rows_of(room, arguments):
    """The mutations of a room that are asked for."""
    if room != KERNELS_ROOM:
        rows = list(sampled(room, arguments.sample, arguments.seed, arguments.files))
    elif arguments.turn:
        rows = shuffled(barriers(), room, arguments.seed)[:arguments.sample]
    else:
        rows = list(barriers())
    return [row for row in rows if arguments.only in row[0]]


def try_all(work, arguments, end):
    """Lines about what is not as it should be, of {title: mutations}."""
    alone = {row[1] for title, rows in work.items() if title != KERNELS_ROOM for row in rows}
    copy, wrong = None, []
    for title, mutations in work.items():
        counts = {"killed": 0, "SURVIVED": 0, "not compiled": 0}
        try:
            if title == KERNELS_ROOM:
                build = LeftOut(ROOT, arguments.build.resolve(), end)
            else:
                build = copy = copy or Copy(arguments.work.resolve(), arguments.build.resolve(), alone, end)
            tests = dict.fromkeys(test for row in mutations for test in row[3])
            build.measure(tests)
            counts = look_at(build, mutations)
        except OutOfTime as stopped:
            note(f"mutations: none of {len(mutations)} was tried in the time there is: {stopped} without any change")
        wrong += [line for line in [too_few(title, counts, arguments.floor, arguments.turn)] if line]
        print(f"{title}: {sum(counts.values())} of {len(mutations)} mutations, {counts['killed']} killed, {counts['SURVIVED']} survived, "
              f"{counts['not compiled']} not compiled", flush=True)
    return wrong


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="mutations whose name contains TEXT, as FILE:LINE does")
    parser.add_argument("--room", choices=sorted([*ROOMS, KERNELS_ROOM]), action="append", help="may be given several times")
    parser.add_argument("--sample", type=int, default=30, metavar="N", help="changes to each room (default: 30)")
    parser.add_argument("--seed", default="1", metavar="N", help="which ones (default: 1)")
    parser.add_argument("--files", type=int, metavar="N", help="of so many files (default: of all; 4 with --turn)")
    parser.add_argument("--turn", action="store_true", help="the room and the seed that this commit draws")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="N", help="after which everything has ended")
    parser.add_argument("--floor", type=float, default=1, metavar="F", help="part that is to be killed (default: 1)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="configured as the copy is to be")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build-mutations", help="where the copy is made")
    parser.add_argument("--check", action="store_true", help="build nothing: is every listed text in its file once?")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="of the sources that --check reads")
    return parser.parse_args()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by way of what puts the source back
    os.environ.pop("TANDEM_GOLDEN_DIR", None)  # the committed cases decide, on every machine
    arguments = parse_arguments()
    end = End(arguments.seconds)
    if arguments.turn:
        room, arguments.seed = drawn_by_commit()
        arguments.room = [room]
        arguments.files = arguments.files or FILES_IN_TURN
    if arguments.check or not arguments.room:
        chosen = [row for row in MUTATIONS if arguments.only in row[0]]
        if lines := outdated(arguments.root if arguments.check else ROOT, chosen):
            sys.exit("\n".join([*lines, "mend the list in deploy/scripts/mutations.py"]))
        work = {"listed": chosen if arguments.check else list(listed(arguments.only))}
    else:
        work = {room: rows_of(room, arguments) for room in arguments.room}
    if not any(work.values()):
        sys.exit(f"no mutation's name contains \"{arguments.only}\": nothing was checked")
    if arguments.check:
        print(f"the texts of {len(work['listed'])} mutations are in their files")
        return 0
    wrong = try_all(work, arguments, end)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
