#!/usr/bin/env python3
"""Tests the tests: changes one thing of the source at a time and requires that a test fails.

    deploy/scripts/mutations.py [--only TEXT]                    # the mutations that are listed in this script
    deploy/scripts/mutations.py --room ROOM [--sample N] [--seed N]   # some of all small changes to a room
    deploy/scripts/mutations.py --turn [--sample N] [--seconds N] [--floor F]   # those that this commit draws, of one room
    deploy/scripts/mutations.py --room kernels          # each barrier of the CUDA kernels left out, on the emulator
    deploy/scripts/mutations.py --check [--root DIR]    # only whether every listed text is still there

Each mutation is made in a copy of the tree (--work), never in the tree itself; the smallest test program that may
notice it is built there and run, then the next one of the room. The copy is configured as --build is, and what
ccache knows is not compiled again. Prints a line for each mutation and sums; exit code 1 where one survived: then a
test is missing, or the change changes nothing that can be seen. Two cores take a quarter of an hour to build the
copy without a cache, and 5 to 15 seconds for a mutation. .ci/run therefore looks at a few of them (--turn) once its
build has filled the cache: only what is changed is compiled for it.

--seconds N: after N seconds no mutation is begun. --floor F: the part of the mutations that are to be killed (default: 1,
all); a few of any sample change nothing that can be seen. Fewer than three that compile fail too.

Barriers need no copy: the emulator leaves one out that TANDEM_EMULATED_SKIP names, so the tests of --build are run,
once they are built, and a mutation takes as long as a test.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from ci_turns import draw, git, note  # noqa: E402
from mutation_sites import sites_of  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOSSES = "trainer_worker/losses"
ADVANTAGES = "controller/algorithm"
GENERATION = "rollout_worker/generation"
# By room, its sources, and the tests that are to notice a change, those that are built and run fastest first.
ROOMS = {
    "losses": ([f"{LOSSES}/*.cc", f"{LOSSES}/policy/*.cc"],
               ["losses_test", "policy_loss_committed_golden_test",
                "bypass_loss_committed_golden_test"]),
    "advantages": ([f"{ADVANTAGES}/*.cc", f"{ADVANTAGES}/advantages/*.cc"],
                   ["algorithm_test", "advantages_committed_golden_test", "kl_committed_golden_test"]),
    "scheduler": ([f"{GENERATION}/scheduler.cc", f"{GENERATION}/kv_cache.cc"],
                  ["rollout_core_test", "rollout_generation_test"]),
    "weights": (["common/weights/*.cc", "trainer_worker/weight_sync/*.cc", "rollout_worker/weights/*.cc"],
                ["weights_test", "weight_pair_test", "update_client_test", "rollout_engine_test"]),
}
# Kernels: by source, the tests on the emulator that are to notice a barrier that is missing.
KERNELS = {
    "common/ops/cuda/attention/*.cu": ["cuda_attention_test"],
    "common/ops/cuda/linear/*.cu": ["cuda_linear_test"],
    "common/ops/cuda/rows/*.cu": ["cuda_row_ops_test", "cuda_ops_test"],
    "common/ops/cuda/rows/row_shape.h": ["cuda_row_ops_test"],
    "common/ops/cuda/*.cu": ["cuda_ops_test"],
    "common/weights/cuda/*.cu": ["weights_cuda_test"],
}
BARRIER = re.compile(r"^(?!\s*//).*\b(?:__syncthreads|__syncwarp|SyncWarp)\(\);")
# A mutant may loop for ever and fill the memory meanwhile.
SECONDS, MEMORY_BYTES = 120, 16 << 30
FEWEST = 3  # of which a floor tells anything
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


def sampled(room, count, seed):
    """The same for `count` of all small changes to the room's sources, in the order in which they are drawn: equal
    seeds draw equally, and a run that is cut off, or of a smaller `count`, has looked at the first of them."""
    sites = []
    for file in sources_of(room):
        sites += [(file, site) for site in sites_of((ROOT / file).read_text())]
    random.Random(f"{seed} {room}").shuffle(sites)
    for file, site in sites[:count]:
        name = f"{file}:{site.line}:{site.column} {site.describe()}"
        yield name, file, site.mutate((ROOT / file).read_text()), ROOMS[room][1]


def barriers(only):
    """The same for each barrier of a kernel; its line in place of a mutated text."""
    for pattern, tests in KERNELS.items():
        for path in sorted(ROOT.glob(pattern)):
            file = str(path.relative_to(ROOT))
            for line, text in enumerate(path.read_text().splitlines(), 1):
                name = f"{file}:{line} without {text.strip()}"
                if BARRIER.match(text) and only in name:
                    yield name, file, line, tests


def sources_of(room):
    """The room's sources, from the root."""
    return sorted(str(path.relative_to(ROOT)) for pattern in ROOMS[room][0] for path in ROOT.glob(pattern))


def succeeds(command, folder, environment=None):
    """Runs it. What it has started ends with this script, too: a test of a mutant may loop for ever."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          env={**os.environ, **(environment or {})}, start_new_session=True) as process:
        try:
            return process.wait() == 0
        except BaseException:
            end_session(process.pid)
            raise


def end_session(session):
    """ctest gives each test a process group of its own; all are in the session."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) == session:
                os.kill(int(stat.parent.name), signal.SIGKILL)
        except (OSError, IndexError):
            continue  # it has ended meanwhile


class Build:
    """A build folder of the tree at `root`, whose tests are built and run."""

    def __init__(self, root, build):
        self.root, self.build = root, build
        self.programs = self._programs()

    def _programs(self):
        """By the name of a test, the program that has it; ctest itself names no program that is not built yet."""
        programs = {}
        for file in self.build.rglob("CTestTestfile.cmake"):
            programs.update(re.findall(r'^add_test\(\[=\[(\w+)\]=\] "[^"]*/(\w+)"', file.read_text(), re.M))
        return programs

    def builds(self, program):
        return succeeds(["nice", "-n", "5", "ninja", "-C", self.build, program], self.root)

    def fails(self, test, seconds=SECONDS, **environment):
        """Whether the test fails, takes too long, or takes too much memory."""
        return not succeeds(["prlimit", f"--as={MEMORY_BYTES}", "--core=0", "nice", "-n", "5", "ctest", "--test-dir",
                             self.build, "--no-tests=error", "--timeout", str(seconds), "-R", f"^{test}$"], self.root,
                            environment)

    def require_green(self, tests):
        """What fails without a mutation tells nothing about one."""
        for test in tests:
            if not self.builds(self.programs[test]):
                sys.exit(f"{self.programs[test]} is not built: ninja -C {self.build} {self.programs[test]}")
            if self.fails(test):
                sys.exit(f"{test} fails without any mutation: ctest --test-dir {self.build} -R '^{test}$' -V")


class LeftOut(Build):
    """The tree's own build, whose emulator leaves out a barrier of a kernel. It says so itself where the rest of a
    block waits for ever, so that a test has as long as it needs."""

    def fails(self, test, seconds=1800, **environment):
        return super().fails(test, seconds, **environment)

    def verdict(self, file, line, tests):
        """What becomes of the tests where the barrier in that line is missing."""
        for test in tests:
            if self.fails(test, TANDEM_EMULATED_SKIP=f"{file}:{line}"):
                return "killed", test
        return "SURVIVED", ""


class Copy(Build):
    """The tree as it is now, elsewhere, with a build folder in which the files that are to be changed are compiled alone."""

    def __init__(self, work, build, alone):
        # Where a clone has its build, or the compiler's paths would be others and ccache would know none of them.
        self.root, self.build = work / "source", work / "source/build"
        files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True,
                               capture_output=True, text=True).stdout.split("\0")
        present = [file for file in files if (ROOT / file).is_file()]
        for file in present:
            self._copy(file)
        kept = set(present)
        for path in self.root.rglob("*"):
            if path.is_file() and not path.is_relative_to(self.build) and str(path.relative_to(self.root)) not in kept:
                path.unlink()  # of an earlier run; CMake would find it
        self._configure(build, alone)
        super().__init__(self.root, self.build)

    def _copy(self, file):
        to = self.root / file
        if to.is_file() and to.read_bytes() == (ROOT / file).read_bytes():
            return
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, to)

    def _configure(self, build, alone):
        cache = build / "CMakeCache.txt"
        if not cache.is_file():
            sys.exit(f"{build} is not configured, and the copy is to be built alike: run deploy/build.sh first, "
                     "or name another folder: --build DIR")
        values = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(), re.M))
        options = [f"-D{name}={values[name]}" for name in ("TANDEM_TORCH_ROOT", "TANDEM_UNITY_BATCH", "TANDEM_CUDA")
                   if name in values]
        made = subprocess.run(["cmake", "-S", self.root, "--preset", "release", "-B", self.build, *options,
                               f"-DTANDEM_ALONE={';'.join(sorted(alone))}"], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            sys.exit(f"the copy {self.root} is not configured:\n{made.stdout[-3000:]}{made.stderr[-3000:]}")

    def verdict(self, file, text, tests):
        """What becomes of the tests where the file has this text: `killed`, `SURVIVED` or `not compiled`, and
        the test that failed. The file is put back."""
        path = self.root / file
        before = path.read_text()
        try:
            path.write_text(text)
            for test in tests:
                if not self.builds(self.programs[test]):
                    return "not compiled", ""
                if self.fails(test):
                    return "killed", test
            return "SURVIVED", ""
        finally:
            path.write_text(before)


def look_at(build, mutations, deadline=float("inf")):
    """Prints a line for each mutation, of which none is begun after the deadline; the number of each verdict."""
    counts = {"killed": 0, "SURVIVED": 0, "not compiled": 0}
    for name, file, text, tests in mutations:
        began = time.monotonic()
        if began > deadline:
            break
        verdict, test = build.verdict(file, text, tests)
        counts[verdict] += 1
        if verdict == "SURVIVED":
            note(f"mutations: no test fails with this change: {name}")
        print(f"{verdict:12} {name:70} {test} {time.monotonic() - began:.0f}s", flush=True)
    return counts


def too_few(title, counts, floor):
    """A line about what the verdicts of a title lack, or ""."""
    killed, of = counts["killed"], counts["killed"] + counts["SURVIVED"]
    if floor < 1 and of < FEWEST:
        return f"{title}: {of} mutations were tried, and fewer than {FEWEST} tell nothing: is the machine too slow for --seconds?"
    if killed < floor * of:
        return (f"{title}: {killed} of {of} mutations were killed, and at least {floor:.0%} are to be: add tests that fail with "
                "the changes that survived")
    return ""


def drawn_by_commit():
    """(room, seed) of this run of .ci/run."""
    drawn = draw(len(ROOMS), ROOT)
    room = sorted(ROOMS)[drawn.turn]
    note(f"mutations: {drawn.text()}: a few of the changes to the room {room}; {', '.join(sorted(ROOMS.keys() - {room}))} not "
         "looked at: another turn by design")
    return room, os.environ.get("TANDEM_CI_TURN") or (git(ROOT, "rev-parse", "HEAD") or [""])[0]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="mutations whose name contains TEXT, as FILE:LINE does")
    parser.add_argument("--room", choices=sorted([*ROOMS, "kernels"]), action="append", help="may be given several times")
    parser.add_argument("--sample", type=int, default=30, metavar="N", help="changes to each room (default: 30)")
    parser.add_argument("--seed", default="1", metavar="N", help="which ones (default: 1)")
    parser.add_argument("--turn", action="store_true", help="the room and the seed that this commit draws")
    parser.add_argument("--seconds", type=float, default=float("inf"), metavar="N", help="after which no mutation is begun")
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
    deadline = time.monotonic() + arguments.seconds
    if arguments.turn:
        room, arguments.seed = drawn_by_commit()
        arguments.room = [room]
    if arguments.check or not arguments.room:
        chosen = [row for row in MUTATIONS if arguments.only in row[0]]
        if lines := outdated(arguments.root if arguments.check else ROOT, chosen):
            sys.exit("\n".join([*lines, "mend the list in deploy/scripts/mutations.py"]))
        work = {"listed": chosen if arguments.check else list(listed(arguments.only))}
    else:
        work = {room: list(barriers(arguments.only)) if room == "kernels" else
                [row for row in sampled(room, arguments.sample, arguments.seed) if arguments.only in row[0]]
                for room in arguments.room}
    if not any(work.values()):
        sys.exit(f"no mutation's name contains \"{arguments.only}\": nothing was checked")
    if arguments.check:
        print(f"the texts of {len(work['listed'])} mutations are in their files")
        return 0
    alone = {row[1] for title, rows in work.items() if title != "kernels" for row in rows}
    copy = None
    wrong = []
    for title, mutations in work.items():
        if title == "kernels":
            build = LeftOut(ROOT, arguments.build.resolve())
        else:
            build = copy = copy or Copy(arguments.work.resolve(), arguments.build.resolve(), alone)
        build.require_green(sorted({test for row in mutations for test in row[3]}))
        counts = look_at(build, mutations, deadline)
        wrong += [line for line in [too_few(title, counts, arguments.floor)] if line]
        print(f"{title}: {sum(counts.values())} of {len(mutations)} mutations, {counts['killed']} killed, {counts['SURVIVED']} survived, "
              f"{counts['not compiled']} not compiled", flush=True)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
