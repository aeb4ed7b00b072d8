// Samples that continue from tokens of earlier rounds (partial rollouts). R1: equal weights give
// equal bits wherever a sample was cut. R2: new weights do not change the tokens before them.
#include <algorithm>

#include <catch2/catch.hpp>

#include "common/process/threads.h"
#include "tests/rollout_worker/continuation_rig.h"
#include "tests/support/whole_forward.h"

namespace tandem {
namespace {

using namespace tandem::testing;

constexpr int64_t kServed = 3;  // weight version of a Rig

std::vector<GenerationRequest> Requests(const std::vector<int64_t>& lengths,
                                        int64_t samples,
                                        int64_t max_tokens) {
  std::vector<GenerationRequest> requests = MixedRequests(lengths, samples, max_tokens);
  for (GenerationRequest& request : requests) request.version = kServed;
  return requests;
}

std::unique_ptr<Rig> ContinuationReplica(const TinyWeights& weights, const RigOptions& options) {
  return std::make_unique<Rig>(weights, options);
}

// Replicas that chunk, share and compute in different ways.
RigOptions Kind(int round) {
  RigOptions options;
  if (round % 3 == 1) options.max_num_batched_tokens = 17;
  if (round % 3 == 1) options.max_num_seqs = 5;
  if (round % 3 == 2) options.share_prompts = false;
  options.threads = 1 + round % 2;
  return options;
}

}  // namespace

TEST_CASE("R1: with the same weights a cut changes no token and no bit of a log-prob, wherever") {
  for (const std::string type : {"llama", "qwen2", "qwen3"}) {
    TinyModelOptions model;
    model.model_type = type;
    const TinyWeights weights(model, DType::kBFloat16);
    const auto requests = Requests({5, 64, 130, 63}, 3, 80);
    const SamplesById whole = GenerateAll(*ContinuationReplica(weights, {}), requests);
    // With a prompt of 5 tokens the cuts at 58 to 60 are those beside the end of its first block,
    // with one of 63 or 64 those at 1 are.
    for (const int64_t cut : {1, 20, 58, 59, 60, 63, 64, 65, 79}) {
      for (const bool share : {true, false}) {
        INFO(type << ", cut at " << cut << (share ? "" : ", prompts not shared"));
        const auto rest = ResumeAll(requests, whole, cut);
        const auto rig = ContinuationReplica(weights, {.share_prompts = share});
        RequireRest(GenerateAll(*rig, rest), whole, cut);
      }
    }
  }
}

TEST_CASE("R1: rounds of any cap, each on another replica, end in the samples of a single one") {
  const TinyWeights weights({.model_type = "qwen3"}, DType::kBFloat16);
  const auto requests = Requests({5, 62, 130}, 3, 24);
  const SamplesById whole = GenerateAll(*ContinuationReplica(weights, {}), requests);
  // 1: every token has a round of its own. 24 and more: nothing is ever cut.
  for (const int64_t cap : {1, 2, 7, 23, 24, 1000}) {
    INFO("cap " << cap);
    int rounds = 0;
    const auto replica = [&](int round) {
      rounds = round + 1;
      return ContinuationReplica(weights, Kind(round));
    };
    RequireRest(GenerateInRounds(requests, cap, replica), whole, 0);
    REQUIRE(rounds == (cap >= 24 ? 1 : (24 + cap - 1) / cap));
  }
}

TEST_CASE("R1: preemption while the past is prefilled again changes nothing") {
  const TinyWeights weights({}, DType::kBFloat16);
  const auto requests = Requests({5, 64, 100, 63, 1}, 3, 80);
  const SamplesById whole = GenerateAll(*ContinuationReplica(weights, {}), requests);
  for (const bool share : {true, false}) {
    const auto tight = ContinuationReplica(
        weights, {.share_prompts = share, .max_model_len = 256, .kv_blocks = 6});
    RequireRest(GenerateAll(*tight, ResumeAll(requests, whole, 40)), whole, 40);
    REQUIRE(tight->generator->load().preemptions > 0);
  }
}

TEST_CASE("R1: samples of one group may have gone on for different lengths, or not at all") {
  const TinyWeights weights({}, DType::kBFloat16);
  GenerationRequest request = Requests({70}, 5, 60)[0];
  request.params.ignore_eos = true;
  const SamplesById whole = GenerateAll(*ContinuationReplica(weights, {}), {request});
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{0, 10, 0, 59, 58}, {30, 0, 1, 0, 0}, {0, 0, 0, 0, 1}}) {
    GenerationRequest rest = request;
    int64_t carried = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      rest.continued.push_back(HeadOf(whole.at(rest.sample_ids[i]), lengths[i]));
      carried += lengths[i];
    }
    for (const RigOptions& options : {RigOptions{}, Kind(1), Kind(2)}) {
      const auto rig = ContinuationReplica(weights, options);
      RequireRest(GenerateAll(*rig, {rest}), whole, 0);
      // The prompt once where it is shared, and what each came with.
      const int64_t prompts = options.share_prompts ? 1 : 5;
      REQUIRE(rig->generator->load().prefill_tokens == prompts * 70 + carried);
      REQUIRE(rig->generator->load().generated_tokens == 5 * 60 - carried);
    }
  }
}

TEST_CASE("R1: a group of one sample goes on like any other") {
  const TinyWeights weights({}, DType::kBFloat16);
  const auto requests = Requests({63, 64, 65, 1}, 1, 70);
  const SamplesById whole = GenerateAll(*ContinuationReplica(weights, {}), requests);
  for (const int64_t cut : {1, 33, 63}) {
    RequireRest(GenerateAll(*ContinuationReplica(weights, {}), ResumeAll(requests, whole, cut)),
                whole, cut);
  }
}

TEST_CASE("R2: new weights leave the tokens before them as they came and read them all again") {
  const TinyWeights old_weights({.seed = 1}, DType::kBFloat16);
  const TinyWeights new_weights({.seed = 2}, DType::kBFloat16);
  std::vector<GenerationRequest> requests = Requests({70, 9}, 3, 50);
  for (GenerationRequest& request : requests) request.params.ignore_eos = true;
  const SamplesById before = GenerateAll(*ContinuationReplica(old_weights, {}), requests);
  auto rest = ResumeAll(requests, before, 20);
  for (GenerationRequest& request : rest) request.version = 4;
  const auto rig = ContinuationReplica(new_weights, {});
  rig->version = 4;
  const SamplesById after = GenerateAll(*rig, rest);
  const auto ops = CreateCpuForwardOps(DType::kBFloat16, std::make_shared<ThreadPool>(1)).value();
  const HeldModel held = {.spec = new_weights.spec,
                          .storage = new_weights.region->data(),
                          .vocab_limit = TinyTokenizerSize()};
  REQUIRE(after.size() == 6);
  for (const auto& [id, sample] : after) {
    INFO("sample " << id);
    const Sample& old_sample = before.at(id);
    const auto at = [&](int64_t token) { return sample.prompt_tokens + token; };
    REQUIRE(sample.response_tokens() == 50);
    for (int64_t i = 0; i < 50; ++i) {
      const auto index = static_cast<size_t>(i);
      REQUIRE(sample.versions[index] == (i < 20 ? kServed : 4));
      if (i >= 20) continue;
      REQUIRE(sample.log_probs[index] == old_sample.log_probs[index]);
      REQUIRE(sample.tokens[static_cast<size_t>(at(i))] ==
              old_sample.tokens[static_cast<size_t>(at(i))]);
    }
    REQUIRE(sample.segments.size() == 3);
    REQUIRE(sample.segments[1].begin == at(0));
    REQUIRE(sample.segments[1].length == 20);
    REQUIRE(sample.segments[1].weight_version == kServed);
    REQUIRE(sample.segments[2].begin == at(20));
    REQUIRE(sample.segments[2].length == 30);
    REQUIRE(sample.segments[2].weight_version == 4);
    // What the new weights make of the whole sequence, the old tokens' K and V included.
    const std::vector<float> read = ForwardWhole(HostDevice(), *ops, held, sample)->log_probs;
    REQUIRE(std::equal(read.begin() + 20, read.end(), sample.log_probs.begin() + 20));
    REQUIRE(!std::equal(read.begin(), read.begin() + 20, sample.log_probs.begin()));
  }
}

TEST_CASE("max_tokens counts what a sample came with, and an end wins over the round's limit") {
  const TinyWeights weights({}, DType::kBFloat16);
  GenerationRequest request = Requests({10}, 1, 40)[0];
  request.params.ignore_eos = true;
  const SamplesById whole = GenerateAll(*ContinuationReplica(weights, {}), {request});
  const uint64_t id = request.sample_ids[0];
  const auto ends = [&](GenerationRequest rest, int64_t max_new_tokens) {
    rest.continued[0].max_new_tokens = max_new_tokens;
    return GenerateAll(*ContinuationReplica(weights, {}), {rest}).at(id);
  };
  const GenerationRequest rest = Resume(request, whole, 30);
  REQUIRE(ends(rest, 0).finish_reason == FinishReason::kLength);
  REQUIRE(ends(rest, 0).response_tokens() == 40);
  REQUIRE(ends(rest, 9).finish_reason == FinishReason::kCut);
  REQUIRE(ends(rest, 9).response_tokens() == 39);
  REQUIRE(ends(rest, 10).finish_reason == FinishReason::kLength);
  REQUIRE(ends(rest, 11).finish_reason == FinishReason::kLength);
  // The token that a round would be cut at ends the response.
  const std::vector<int32_t>& tokens = whole.at(id).tokens;
  auto last = tokens.begin() + 10 + 31;
  while (last != tokens.end() && std::find(tokens.begin() + 10, last, *last) != last) ++last;
  const int64_t length = last - (tokens.begin() + 10) + 1;
  REQUIRE(length < 40);
  REQUIRE(ends(rest, length - 30).finish_reason == FinishReason::kCut);
  GenerationRequest stops = rest;
  stops.params.stop_token_ids = {*last};
  const Sample stopped = ends(stops, length - 30);
  REQUIRE(stopped.finish_reason == FinishReason::kStop);
  REQUIRE(stopped.response_tokens() == length);
  REQUIRE(ends(stops, length - 31).finish_reason == FinishReason::kCut);
}

TEST_CASE("Without log-probs samples go on without them") {
  const TinyWeights weights({}, DType::kBFloat16);
  GenerationRequest request = Requests({10}, 2, 30)[0];
  request.params.ignore_eos = true;
  const SamplesById with = GenerateAll(*ContinuationReplica(weights, {}), {request});
  const auto rig = ContinuationReplica(weights, {});
  GeneratorOptions options = MakeGeneratorOptions({});
  options.log_probs = false;
  rig->generator = std::make_unique<Generator>(options, rig->runner.get(), rig->kv.get());
  const SamplesById whole = GenerateAll(*rig, {request});
  const SamplesById resumed = GenerateAll(*rig, {Resume(request, whole, 12)});
  RequireSame(resumed, whole);
  for (const auto& [id, sample] : resumed) {
    REQUIRE(sample.log_probs.empty());
    REQUIRE(sample.tokens == with.at(id).tokens);
  }
  // A request that asks for them has them all, or is refused.
  const auto submit = [&](GenerationRequest rest, bool asks) {
    rest.log_probs = asks;
    return rig->generator->Submit(rest, std::make_shared<CollectingSink>()).code();
  };
  REQUIRE(submit(Resume(request, with, 12), false) == absl::StatusCode::kInvalidArgument);
  REQUIRE(submit(Resume(request, whole, 12), true) == absl::StatusCode::kInvalidArgument);
  REQUIRE(submit(Resume(request, with, 12), true) == absl::StatusCode::kOk);
}

TEST_CASE("An aborted request that goes on delivers its past, and goes on from there once more") {
  const TinyWeights weights({}, DType::kBFloat16);
  GenerationRequest request = Requests({70}, 3, 60)[0];
  request.params.ignore_eos = true;
  const SamplesById whole = GenerateAll(*ContinuationReplica(weights, {}), {request});
  GenerationRequest rest = Resume(request, whole, 25);
  // 45 tokens a step: it is aborted while it waits, while the prompt is read, while the past is,
  // and while tokens come.
  for (const int steps : {0, 1, 2, 3, 10}) {
    INFO(steps << " steps");
    const auto rig = ContinuationReplica(weights, {.max_num_batched_tokens = 45});
    const auto sink = rig->Submit(rest);
    for (int i = 0; i < steps; ++i) rig->Step();
    REQUIRE(rig->generator->Abort({rest.request_id}) == 1);
    REQUIRE(sink->ends == 1);
    REQUIRE(rig->generator->load().kv_blocks_used == 0);
    REQUIRE(sink->samples.size() == 3);
    GenerationRequest again = request;
    again.sample_ids.clear();
    for (const Sample& sample : sink->samples) {
      REQUIRE(sample.finish_reason == FinishReason::kAborted);
      if (steps < 3) REQUIRE(sample.response_tokens() == 25);
      if (steps == 10) REQUIRE(sample.response_tokens() > 25);
      REQUIRE(sample.versions.size() == static_cast<size_t>(sample.response_tokens()));
      again.sample_ids.push_back(sample.sample_id);
      again.continued.push_back(HeadOf(sample, sample.response_tokens()));
    }
    RequireRest(GenerateAll(*rig, {again}), whole, 0);
  }
}

}  // namespace tandem
