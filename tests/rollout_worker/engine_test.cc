#include "rollout_worker/engine.h"

#include <future>

#include <catch2/catch.hpp>

#include "tests/rollout_worker/engine_rig.h"

namespace tandem {
namespace {

using namespace tandem::testing;

constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

int64_t Held(Engine& engine, const std::string& tag, Location location) {
  for (const LedgerEntry& entry : engine.ledger().Snapshot().entries) {
    if (entry.tag == tag && entry.location == location) return entry.current_bytes;
  }
  return 0;
}

SamplesById Expected(const TinyWeights& weights, const std::vector<GenerationRequest>& requests) {
  Rig rig(weights, {});
  return GenerateAll(rig, requests);
}

GenerationRequest LongRequest() {
  GenerationRequest request = MixedRequests({20}, 4, 400)[0];
  request.params.ignore_eos = true;
  request.stream_tokens = true;
  return request;
}

struct Fixture {
  TinyWeights weights{{}, DType::kBFloat16};
  std::vector<GenerationRequest> requests = MixedRequests({5, 70, 64}, 3, 40);
  std::unique_ptr<Engine> engine = Make(false);

  std::unique_ptr<Engine> Make(bool load) {
    EngineOptions options = MakeEngineTestOptions(weights, {});
    options.load_weights = load;
    return Engine::Create(options).value();
  }
  RolloutState state() const { return engine->status().state; }
};

}  // namespace

TEST_CASE("A rollout without weights refuses to generate until it is synced") {
  Fixture f;
  REQUIRE(f.state() == RolloutState::kEmpty);
  REQUIRE(f.engine->status().version == -1);
  REQUIRE(Try(*f.engine, f.requests[0]).code() == kPrecondition);
  REQUIRE(f.engine->Digests().status().code() == kPrecondition);
  REQUIRE(Publish(*f.engine, f.weights, 5).ok());
  REQUIRE(f.state() == RolloutState::kServing);
  REQUIRE(f.engine->status().version == 5);
  const SamplesById samples = GenerateAll(*f.engine, f.requests);
  RequireSame(samples, Expected(f.weights, f.requests));
  for (const auto& [id, sample] : samples) {
    for (const int64_t version : sample.versions) REQUIRE(version == 5);
  }
}

TEST_CASE("Weights read from the checkpoint are those that a sync brings") {
  Fixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  const auto synced = f.engine->Digests().value();
  f.engine.reset();
  f.engine = f.Make(true);
  REQUIRE(f.state() == RolloutState::kServing);
  REQUIRE(f.engine->status().version == 0);
  REQUIRE(f.engine->Digests().value() == synced);
  RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
}

TEST_CASE("A request for another weight version is refused by both numbers") {
  Fixture f;
  REQUIRE(Publish(*f.engine, f.weights, 5).ok());
  f.requests[0].version = 6;
  const absl::Status refused = Try(*f.engine, f.requests[0]);
  REQUIRE(refused.code() == kPrecondition);
  REQUIRE(std::string(refused.message()).find("version 6") != std::string::npos);
  REQUIRE(std::string(refused.message()).find("version 5") != std::string::npos);
  f.requests[0].version = 5;
  REQUIRE(Try(*f.engine, f.requests[0]).ok());
}

TEST_CASE("Sleep level 1 gives KV and device weights back, and waking brings the same results") {
  Fixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  const SamplesById expected = GenerateAll(*f.engine, f.requests);
  const std::byte* weights_at = f.engine->weights_address();
  const std::byte* kv_at = f.engine->kv_address();
  for (int cycle = 0; cycle < 3; ++cycle) {
    const int64_t freed = f.engine->Sleep({}).value();
    REQUIRE(f.state() == RolloutState::kAsleep);
    REQUIRE(Held(*f.engine, "kv_cache", Location::kDevice) == 0);
    REQUIRE(Held(*f.engine, "weights", Location::kDevice) == 0);
    REQUIRE(Held(*f.engine, "activations", Location::kDevice) == 0);
    REQUIRE(Held(*f.engine, "weights", Location::kHost) >= f.weights.layout.total_bytes());
    REQUIRE(Try(*f.engine, f.requests[0]).code() == kPrecondition);
    REQUIRE(f.engine->Sleep({}).value() == 0);
    REQUIRE(f.engine->Wake({}).value() == freed);
    REQUIRE(f.state() == RolloutState::kServing);
    REQUIRE(Held(*f.engine, "weights", Location::kHost) == 0);
    REQUIRE(f.engine->weights_address() == weights_at);
    REQUIRE(f.engine->kv_address() == kv_at);
    RequireSame(GenerateAll(*f.engine, f.requests), expected);
  }
}

TEST_CASE("Sleep level 2 drops the weights: only a sync makes the rollout serve again") {
  Fixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  SleepOrder order;
  order.level = 2;
  REQUIRE(f.engine->Sleep(order).value() > 0);
  REQUIRE(f.engine->ledger().Snapshot().process_bytes > 0);
  REQUIRE(Held(*f.engine, "weights", Location::kDevice) == 0);
  REQUIRE(Held(*f.engine, "weights", Location::kHost) == 0);
  REQUIRE(f.engine->status().version == -1);
  REQUIRE(Publish(*f.engine, f.weights, 2).code() == kPrecondition);
  REQUIRE(f.engine->Wake({}).ok());
  REQUIRE(Try(*f.engine, f.requests[0]).code() == kPrecondition);
  REQUIRE(Publish(*f.engine, f.weights, 2).ok());
  RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
}

TEST_CASE("The order of a step: sleep, wake weights, sync, wake KV") {
  Fixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  for (int64_t version = 2; version < 5; ++version) {
    REQUIRE(f.engine->Sleep({}).ok());
    REQUIRE(f.engine->Wake({"weights"}).ok());
    REQUIRE(f.state() == RolloutState::kAsleep);
    REQUIRE(Publish(*f.engine, f.weights, version).ok());
    REQUIRE(f.state() == RolloutState::kAsleep);
    REQUIRE(Held(*f.engine, "kv_cache", Location::kDevice) == 0);
    REQUIRE(Try(*f.engine, f.requests[0]).code() == kPrecondition);
    REQUIRE(f.engine->Wake({"kv_cache"}).ok());
    REQUIRE(f.state() == RolloutState::kServing);
    REQUIRE(f.engine->status().version == version);
    RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
  }
}

TEST_CASE("Tags sleep one by one, and draining alone keeps all memory") {
  Fixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  SleepOrder order;
  order.tags = {"kv_cache"};
  REQUIRE(f.engine->Sleep(order).ok());
  REQUIRE(Held(*f.engine, "weights", Location::kDevice) > 0);
  REQUIRE(Held(*f.engine, "kv_cache", Location::kDevice) == 0);
  REQUIRE(f.engine->Wake({"kv_cache"}).ok());
  REQUIRE(f.state() == RolloutState::kServing);
  order.tags.clear();
  order.drain_only = true;
  REQUIRE(f.engine->Sleep(order).value() == 0);
  REQUIRE(f.state() == RolloutState::kAsleep);
  REQUIRE(Publish(*f.engine, f.weights, 2).ok());
  REQUIRE(f.state() == RolloutState::kServing);
  order.drain_only = false;
  order.tags = {"weights"};
  REQUIRE(f.engine->Sleep(order).ok());
  REQUIRE(f.engine->status().version == -1);
}

TEST_CASE("Illegal orders are refused and leave the rollout serving") {
  Fixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  SleepOrder order;
  order.level = 3;
  REQUIRE(f.engine->Sleep(order).status().code() == absl::StatusCode::kInvalidArgument);
  order.tags = {"wheights"};
  REQUIRE(f.engine->Sleep(order).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(f.engine->Wake({"x"}).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(f.engine->ApplyBucket(2, 1, 0, {}).code() == kPrecondition);
  REQUIRE(f.engine->CommitUpdate(2, 1, {}).code() == kPrecondition);
  REQUIRE(f.engine->AbortUpdate(2, 1).ok());
  Manifest manifest = ManifestOf(f.weights.layout);
  manifest.pop_back();
  REQUIRE(f.engine->BeginUpdate({2, 1000, 1 << 16, 2, manifest}).code() ==
          absl::StatusCode::kInvalidArgument);
  REQUIRE(f.state() == RolloutState::kServing);
  RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
}

TEST_CASE("An open update refuses sleep, wake and requests; aborted early it changes nothing") {
  Fixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  const Manifest manifest = ManifestOf(f.weights.layout);
  const int64_t generation = int64_t{1} << 62;
  REQUIRE(f.engine->BeginUpdate({2, generation, 1 << 16, 2, manifest}).ok());
  REQUIRE(f.state() == RolloutState::kUpdating);
  REQUIRE(f.engine->Sleep({}).status().code() == kPrecondition);
  REQUIRE(f.engine->Wake({}).status().code() == kPrecondition);
  REQUIRE(Try(*f.engine, f.requests[0]).code() == kPrecondition);
  // A trainer that was replaced: the newer one takes over.
  REQUIRE(f.engine->BeginUpdate({3, generation - 1, 1 << 16, 2, manifest}).code() ==
          absl::StatusCode::kAborted);
  REQUIRE(f.engine->BeginUpdate({3, generation + 1, 1 << 16, 2, manifest}).ok());
  REQUIRE(f.state() == RolloutState::kUpdating);
  // What the replaced one still says is not heard.
  REQUIRE(f.engine->CommitUpdate(3, generation, {}).code() == absl::StatusCode::kAborted);
  REQUIRE(f.engine->AbortUpdate(3, generation).ok());
  REQUIRE(f.state() == RolloutState::kUpdating);
  REQUIRE(f.engine->AbortUpdate(3, generation + 1).ok());
  REQUIRE(f.state() == RolloutState::kServing);
  REQUIRE(f.engine->status().version == 1);
  RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
}

TEST_CASE("An update that breaks off half way leaves the rollout empty, and the next one works") {
  Fixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  WeightPublisher publisher(&f.weights.layout, {16 << 10, 2, nullptr});
  EngineUpdateClient client(f.engine.get());
  client.fail_at = 3;
  StorageSource source(f.weights);
  REQUIRE(!publisher.Publish(2, source, &client).ok());
  REQUIRE(f.state() == RolloutState::kEmpty);
  REQUIRE(f.engine->status().version == -1);
  REQUIRE(Try(*f.engine, f.requests[0]).code() == kPrecondition);
  REQUIRE(Publish(*f.engine, f.weights, 2).ok());
  RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
}

TEST_CASE("Sleep lets running requests finish and refuses new ones meanwhile") {
  Fixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  const auto running = std::make_shared<WaitingSink>();
  REQUIRE(f.engine->Generate(LongRequest(), running).ok());
  running->WaitForTokens(1);
  auto asleep = std::async(std::launch::async, [&] { return f.engine->Sleep({}).ok(); });
  // Either the gate is closed already, or this one still came in time; it never fails otherwise.
  const absl::Status late = Try(*f.engine, f.requests[0]);
  REQUIRE((late.ok() || late.code() == kPrecondition));
  REQUIRE(asleep.get());
  REQUIRE(running->Wait().samples.size() == 4);
  for (const Sample& sample : running->Wait().samples) {
    REQUIRE(sample.finish_reason == FinishReason::kLength);
  }
}

TEST_CASE("Abort ends what is named, and a shutdown ends what is left") {
  Fixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  GenerationRequest request = LongRequest();
  const auto first = std::make_shared<WaitingSink>(), second = std::make_shared<WaitingSink>();
  request.request_id = "first";
  REQUIRE(f.engine->Generate(request, first).ok());
  request.request_id = "second";
  REQUIRE(f.engine->Generate(request, second).ok());
  first->WaitForTokens(1);
  REQUIRE(f.engine->Abort({"first"}).value() == 1);
  REQUIRE(first->Wait().end.ok());
  REQUIRE(first->Wait().samples.at(0).finish_reason == FinishReason::kAborted);
  f.engine->Shutdown();
  const absl::Status end = second->Wait().end;
  REQUIRE((end.ok() || end.code() == absl::StatusCode::kUnavailable));
  REQUIRE(f.engine->Wake({}).status().code() == absl::StatusCode::kUnavailable);
  REQUIRE(f.engine->Generate(request, first).code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("An engine whose model does not fit is refused before anything runs") {
  const TinyWeights weights({}, DType::kBFloat16);
  EngineOptions options = MakeEngineTestOptions(weights, {});
  options.device_bytes = 1 << 20;
  REQUIRE(Engine::Create(options).status().code() == absl::StatusCode::kResourceExhausted);
  options = MakeEngineTestOptions(weights, {});
  options.generator.vocab_limit = weights.spec.vocab_size + 1;
  REQUIRE(Engine::Create(options).status().code() == absl::StatusCode::kInvalidArgument);
  options = MakeEngineTestOptions(weights, {});
  options.load_weights = true;
  options.model_dir = "/nowhere";
  REQUIRE(Engine::Create(options).status().code() == absl::StatusCode::kNotFound);
}

}  // namespace tandem
