// What an engine may do around a weight sync, and what it computes afterwards.
#include <catch2/catch.hpp>

#include "rollout_worker/engine.h"
#include "tests/rollout_worker/continuation_rig.h"
#include "tests/rollout_worker/engine_rig.h"

namespace tandem {
namespace {

using namespace tandem::testing;

int64_t DeviceBytes(Engine& engine, const std::string& tag) {
  for (const LedgerEntry& entry : engine.ledger().Snapshot().entries) {
    if (entry.tag == tag && entry.location == Location::kDevice) return entry.current_bytes;
  }
  return 0;
}

}  // namespace

TEST_CASE(
    "W6: a scrambled update that is given up leaves no version, even before its first bucket") {
  EngineFixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  const Manifest manifest = ManifestOf(f.weights.layout);
  const int64_t number = int64_t{1} << 62;
  REQUIRE(BeginUpdate(*f.engine, {2, number, {1 << 16, 2}, manifest, true}).ok());
  REQUIRE(f.state() == RolloutState::kUpdating);
  REQUIRE(f.engine->status().version == -1);
  // One that takes over does not find an old version either.
  REQUIRE(BeginUpdate(*f.engine, {3, number + 1, {1 << 16, 2}, manifest}).ok());
  REQUIRE(AbortUpdate(*f.engine, {3, number + 1}).ok());
  REQUIRE(f.state() == RolloutState::kEmpty);
  REQUIRE(f.engine->status().version == -1);
  REQUIRE(Try(*f.engine, f.requests[0]).code() == kPrecondition);
  // A manifest that does not fit is refused before anything is lost.
  f.engine.reset();
  f.engine = f.Make(true);
  Manifest short_one = manifest;
  short_one.pop_back();
  REQUIRE(!BeginUpdate(*f.engine, {2, number, {1 << 16, 2}, short_one, true}).ok());
  REQUIRE(f.state() == RolloutState::kServing);
  RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
}

TEST_CASE("W7: addresses outlive sleep, wake and update, and so do the results") {
  EngineFixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  const SamplesById expected = Expected(f.weights, f.requests);
  const std::byte* weights_at = FindMemory(*f.engine).weights;
  const std::byte* kv_at = FindMemory(*f.engine).kv;
  int64_t version = 1;
  for (int cycle = 0; cycle < 6; ++cycle) {
    SleepOrder order;
    order.level = 1 + cycle % 2;
    order.drain_only = cycle % 3 == 2;
    REQUIRE(Sleep(*f.engine, order).ok());
    REQUIRE(Wake(*f.engine, {"weights"}).ok());
    REQUIRE(Publish(*f.engine, f.weights, ++version, cycle % 2 == 1).ok());
    REQUIRE(Wake(*f.engine, {"kv_cache"}).ok());
    REQUIRE(f.state() == RolloutState::kServing);
    REQUIRE(FindMemory(*f.engine).weights == weights_at);
    REQUIRE(FindMemory(*f.engine).kv == kv_at);
    RequireSame(GenerateAll(*f.engine, f.requests), expected);
  }
}

TEST_CASE("W8: after an update no cached prefix is used, with memory kept or given back") {
  EngineFixture f;
  const TinyWeights other({.seed = 2}, DType::kBFloat16);
  for (const bool drain_only : {true, false}) {
    REQUIRE(Publish(*f.engine, f.weights, 1).ok());
    // Twice the same prompt: now its blocks are in the prefix cache.
    RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
    RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
    SleepOrder order;
    order.drain_only = drain_only;
    REQUIRE(Sleep(*f.engine, order).ok());
    REQUIRE(Wake(*f.engine, {"weights"}).ok());
    REQUIRE(Publish(*f.engine, other, 2).ok());
    REQUIRE(Wake(*f.engine, {"kv_cache"}).ok());
    const int64_t prefilled = f.engine->status().load.prefill_tokens;
    const SamplesById samples = GenerateAll(*f.engine, f.requests);
    REQUIRE(f.engine->status().load.prefill_tokens > prefilled);
    // A fresh engine over the new weights.
    RequireSame(samples, Expected(other, f.requests));
    REQUIRE(Sleep(*f.engine, {}).ok());
    REQUIRE(Wake(*f.engine, {}).ok());
  }
}

TEST_CASE(
    "R2: after a sync samples go on under the new weights, and may not go on under older ones") {
  EngineFixture f;
  const TinyWeights other({.seed = 2}, DType::kBFloat16);
  for (GenerationRequest& request : f.requests) request.params.ignore_eos = true;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  const SamplesById first = GenerateAll(*f.engine, f.requests);
  const auto rest = ResumeAll(f.requests, first, 15);
  REQUIRE(Publish(*f.engine, other, 2).ok());
  const SamplesById resumed = GenerateAll(*f.engine, rest);
  // Blocks of the old weights would show.
  RequireSame(resumed, Expected(other, rest));
  for (const auto& [id, sample] : resumed) {
    std::vector<int64_t> versions(15, 1);
    versions.resize(40, 2);
    REQUIRE(sample.versions == versions);
    REQUIRE(sample.segments.size() == 3);
    const std::vector<float>& old_log_probs = first.at(id).log_probs;
    REQUIRE(
        std::equal(old_log_probs.begin(), old_log_probs.begin() + 15, sample.log_probs.begin()));
  }
  // A rollout that fell back, say to a checkpoint: it must not go on from weights to come.
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  const auto later = ResumeAll(f.requests, resumed, 20);
  const absl::Status refused = Try(*f.engine, later[0]);
  REQUIRE(refused.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(refused.message()).find("serves version 1") != std::string::npos);
}

TEST_CASE(
    "W8: after sleep level 2, a wake and a scrambled sync everything is as in a fresh engine") {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    INFO(family);
    EngineFixture f{.weights{{.model_type = family}, DType::kBFloat16}};
    REQUIRE(Publish(*f.engine, f.weights, 1, true).ok());
    RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
    SleepOrder order;
    order.level = 2;
    REQUIRE(Sleep(*f.engine, order).ok());
    REQUIRE(Wake(*f.engine, {"weights"}).ok());
    REQUIRE(Publish(*f.engine, f.weights, 2, true).ok());
    REQUIRE(Wake(*f.engine, {"kv_cache"}).ok());
    // Buffers too: the rotary tables bear on every token.
    RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
  }
}

TEST_CASE("W9: the order of a step is sleep, wake weights, sync, wake KV") {
  EngineFixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  for (int64_t version = 2; version < 5; ++version) {
    REQUIRE(Sleep(*f.engine, {}).ok());
    REQUIRE(Wake(*f.engine, {"weights"}).ok());
    REQUIRE(f.state() == RolloutState::kAsleep);
    REQUIRE(Publish(*f.engine, f.weights, version).ok());
    REQUIRE(f.state() == RolloutState::kAsleep);
    REQUIRE(DeviceBytes(*f.engine, "kv_cache") == 0);
    REQUIRE(Try(*f.engine, f.requests[0]).code() == kPrecondition);
    REQUIRE(Wake(*f.engine, {"kv_cache"}).ok());
    REQUIRE(f.state() == RolloutState::kServing);
    REQUIRE(f.engine->status().version == version);
    RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
  }
}

TEST_CASE("W9: illegal orders are refused and leave the rollout serving") {
  EngineFixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  SleepOrder order;
  order.level = 3;
  REQUIRE(Sleep(*f.engine, order).status().code() == absl::StatusCode::kInvalidArgument);
  order.tags = {"wheights"};
  REQUIRE(Sleep(*f.engine, order).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Wake(*f.engine, {"x"}).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(ApplyBucket(*f.engine, {2, 1}, 0, {}).code() == kPrecondition);
  REQUIRE(CommitUpdate(*f.engine, {2, 1}, {}).code() == kPrecondition);
  REQUIRE(AbortUpdate(*f.engine, {2, 1}).ok());
  Manifest manifest = ManifestOf(f.weights.layout);
  manifest.pop_back();
  REQUIRE(BeginUpdate(*f.engine, {2, 1000, {1 << 16, 2}, manifest}).code() ==
          absl::StatusCode::kInvalidArgument);
  REQUIRE(f.state() == RolloutState::kServing);
  RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
}

TEST_CASE("W9: every order but that of a step is refused by a typed error") {
  EngineFixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  SleepOrder order;
  order.level = 2;
  REQUIRE(Sleep(*f.engine, order).ok());
  REQUIRE(Publish(*f.engine, f.weights, 2).code() == kPrecondition);  // the weights sleep
  REQUIRE(Wake(*f.engine, {"kv_cache"}).ok());
  REQUIRE(Publish(*f.engine, f.weights, 2).code() == kPrecondition);
  REQUIRE(Try(*f.engine, f.requests[0]).code() == kPrecondition);
  REQUIRE(Digests(*f.engine).status().code() == kPrecondition);
  REQUIRE(ReadTensor(*f.engine, "model.norm.weight").status().code() == kPrecondition);
  REQUIRE(Wake(*f.engine, {"weights"}).ok());
  REQUIRE(f.state() == RolloutState::kEmpty);
  REQUIRE(Try(*f.engine, f.requests[0]).code() == kPrecondition);  // woken is not synced
  REQUIRE(ApplyBucket(*f.engine, {2, 1}, 0, {}).code() == kPrecondition);
  REQUIRE(CommitUpdate(*f.engine, {2, 1}, {}).code() == kPrecondition);
  REQUIRE(Publish(*f.engine, f.weights, 2).ok());
  REQUIRE(f.state() == RolloutState::kServing);
  RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
}

}  // namespace tandem
