#include "rollout_worker/engine.h"

#include <future>

#include <catch2/catch.hpp>

#include "tests/rollout_worker/engine_rig.h"

namespace tandem {
namespace {

using namespace tandem::testing;

int64_t Held(Engine& engine, const std::string& tag, Location location) {
  for (const LedgerEntry& entry : engine.ledger().Snapshot().entries) {
    if (entry.tag == tag && entry.location == location) return entry.current_bytes;
  }
  return 0;
}

GenerationRequest LongRequest() {
  GenerationRequest request = MixedRequests({20}, 4, 400)[0];
  request.params.ignore_eos = true;
  request.stream_tokens = true;
  return request;
}

}  // namespace

TEST_CASE("A rollout without weights refuses to generate until it is synced") {
  EngineFixture f;
  REQUIRE(f.state() == RolloutState::kEmpty);
  REQUIRE(f.engine->status().version == -1);
  REQUIRE(Try(*f.engine, f.requests[0]).code() == kPrecondition);
  REQUIRE(Digests(*f.engine).status().code() == kPrecondition);
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
  EngineFixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  const auto synced = Digests(*f.engine).value();
  f.engine.reset();
  f.engine = f.Make(true);
  REQUIRE(f.state() == RolloutState::kServing);
  REQUIRE(f.engine->status().version == 0);
  REQUIRE(Digests(*f.engine).value() == synced);
  RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
}

TEST_CASE("A request for another weight version is refused by both numbers") {
  EngineFixture f;
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
  EngineFixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  const SamplesById expected = GenerateAll(*f.engine, f.requests);
  const std::byte* weights_at = FindMemory(*f.engine).weights;
  const std::byte* kv_at = FindMemory(*f.engine).kv;
  for (int cycle = 0; cycle < 3; ++cycle) {
    const int64_t freed = Sleep(*f.engine, {}).value();
    REQUIRE(f.state() == RolloutState::kAsleep);
    REQUIRE(Held(*f.engine, "kv_cache", Location::kDevice) == 0);
    REQUIRE(Held(*f.engine, "weights", Location::kDevice) == 0);
    REQUIRE(Held(*f.engine, "activations", Location::kDevice) == 0);
    REQUIRE(Held(*f.engine, "weights", Location::kHost) >= f.weights.layout.total_bytes());
    REQUIRE(Try(*f.engine, f.requests[0]).code() == kPrecondition);
    REQUIRE(Sleep(*f.engine, {}).value() == 0);
    REQUIRE(Wake(*f.engine, {}).value() == freed);
    REQUIRE(f.state() == RolloutState::kServing);
    REQUIRE(Held(*f.engine, "weights", Location::kHost) == 0);
    REQUIRE(FindMemory(*f.engine).weights == weights_at);
    REQUIRE(FindMemory(*f.engine).kv == kv_at);
    RequireSame(GenerateAll(*f.engine, f.requests), expected);
  }
}

TEST_CASE("Sleep level 2 drops the weights: only a sync makes the rollout serve again") {
  EngineFixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  SleepOrder order;
  order.level = 2;
  REQUIRE(Sleep(*f.engine, order).value() > 0);
  REQUIRE(f.engine->ledger().Snapshot().process_bytes > 0);
  REQUIRE(Held(*f.engine, "weights", Location::kDevice) == 0);
  REQUIRE(Held(*f.engine, "weights", Location::kHost) == 0);
  REQUIRE(f.engine->status().version == -1);
  REQUIRE(Publish(*f.engine, f.weights, 2).code() == kPrecondition);
  REQUIRE(Wake(*f.engine, {}).ok());
  REQUIRE(Try(*f.engine, f.requests[0]).code() == kPrecondition);
  REQUIRE(Publish(*f.engine, f.weights, 2).ok());
  RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
}

TEST_CASE("P7: resident weights are verified against what was accepted, through sleep and wake") {
  EngineFixture f;
  const auto verify = [&](int64_t version) { return VerifyWeights(*f.engine, version); };
  REQUIRE(verify(-1).code() == kPrecondition);
  REQUIRE(Publish(*f.engine, f.weights, 3).ok());
  REQUIRE(verify(3).ok());
  REQUIRE(verify(2).code() == kPrecondition);
  REQUIRE(Sleep(*f.engine, {}).ok());
  REQUIRE(verify(3).code() == kPrecondition);
  REQUIRE(Wake(*f.engine, {"weights"}).ok());
  REQUIRE(verify(3).ok());
  REQUIRE(Wake(*f.engine, {}).ok());
  REQUIRE(verify(3).ok());
  // One bit of one element, as a defective memory would do it.
  auto* const byte = FindMemory(*f.engine).weights;
  byte[0] ^= std::byte{1};
  const absl::Status changed = verify(3);
  INFO(changed.ToString());
  REQUIRE(changed.code() == absl::StatusCode::kDataLoss);
  REQUIRE(std::string(changed.message()).find("of version 3 changed") != std::string::npos);
  REQUIRE(f.state() == RolloutState::kServing);
  byte[0] ^= std::byte{1};
  REQUIRE(verify(3).ok());
  REQUIRE(Sleep(*f.engine, {.level = 2}).ok());
  REQUIRE(Wake(*f.engine, {}).ok());
  REQUIRE(verify(3).code() == kPrecondition);
}

TEST_CASE("P7: padding and rope tables that change are found like weights") {
  // 290 embedding rows leave 14 rows of padding in the last panel, 50 columns leave 14 columns.
  EngineFixture f{.weights{
      {.vocab_size = 290, .hidden_size = 50, .num_heads = 5, .num_kv_heads = 1, .head_dim = 10},
      DType::kBFloat16}};
  REQUIRE(Publish(*f.engine, f.weights, 3).ok());
  REQUIRE(VerifyWeights(*f.engine, 3).ok());
  const auto refused = [&](const std::string& what) {
    const absl::Status changed = VerifyWeights(*f.engine, 3);
    INFO(changed.ToString());
    REQUIRE(changed.code() == absl::StatusCode::kDataLoss);
    REQUIRE(std::string(changed.message()).find(what) != std::string::npos);
  };
  // The last column of the panel's last row: neither is one of the model.
  auto* const storage = FindMemory(*f.engine).weights;
  const int64_t panels = (290 + 15) / 16;
  std::byte& padding =
      storage[f.weights.layout.global_offsets().embedding + panels * 64 / 2 * 64 - 1];
  REQUIRE(padding == std::byte{0});
  padding = std::byte{0x40};
  refused("padding of embedding in the global tensors changed");
  padding = std::byte{0};
  REQUIRE(VerifyWeights(*f.engine, 3).ok());
  for (const auto& [name, table] : {std::pair("cos", &FindMemory(*f.engine).rope->cos),
                                    std::pair("sin", &FindMemory(*f.engine).rope->sin)}) {
    auto* const element = const_cast<float*>(table->data()) + 7 * 5 + 2;
    const float right = *element;
    *element = -right;
    refused(std::string("rope table ") + name + "[7, 2] changed");
    *element = right;
    REQUIRE(VerifyWeights(*f.engine, 3).ok());
  }
}

TEST_CASE("P7: weights from a checkpoint are verified, those of an open update are not") {
  EngineFixture f;
  f.engine.reset();
  f.engine = f.Make(true);
  REQUIRE(VerifyWeights(*f.engine, 0).ok());
  const UpdateRequest request = {
      .id = {1, 1}, .slots = {1 << 16, 2}, .manifest = ManifestOf(f.weights.layout)};
  REQUIRE(BeginUpdate(*f.engine, request).ok());
  REQUIRE(VerifyWeights(*f.engine, 0).code() == kPrecondition);
  REQUIRE(AbortUpdate(*f.engine, {1, 1}).ok());
  REQUIRE(VerifyWeights(*f.engine, 0).ok());
}

TEST_CASE("Tags sleep one by one, and draining alone keeps all memory") {
  EngineFixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  SleepOrder order;
  order.tags = {"kv_cache"};
  REQUIRE(Sleep(*f.engine, order).ok());
  REQUIRE(Held(*f.engine, "weights", Location::kDevice) > 0);
  REQUIRE(Held(*f.engine, "kv_cache", Location::kDevice) == 0);
  REQUIRE(Wake(*f.engine, {"kv_cache"}).ok());
  REQUIRE(f.state() == RolloutState::kServing);
  order.tags.clear();
  order.drain_only = true;
  REQUIRE(Sleep(*f.engine, order).value() == 0);
  REQUIRE(f.state() == RolloutState::kAsleep);
  REQUIRE(Publish(*f.engine, f.weights, 2).ok());
  REQUIRE(f.state() == RolloutState::kServing);
  order.drain_only = false;
  order.tags = {"weights"};
  REQUIRE(Sleep(*f.engine, order).ok());
  REQUIRE(f.engine->status().version == -1);
}

TEST_CASE("An open update refuses sleep, wake and requests; aborted early it changes nothing") {
  EngineFixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  const Manifest manifest = ManifestOf(f.weights.layout);
  const int64_t number = int64_t{1} << 62;
  REQUIRE(BeginUpdate(*f.engine, {2, number, {1 << 16, 2}, manifest}).ok());
  REQUIRE(f.state() == RolloutState::kUpdating);
  REQUIRE(Sleep(*f.engine, {}).status().code() == kPrecondition);
  REQUIRE(Wake(*f.engine, {}).status().code() == kPrecondition);
  REQUIRE(Try(*f.engine, f.requests[0]).code() == kPrecondition);
  // A trainer that was replaced: the newer one takes over.
  REQUIRE(BeginUpdate(*f.engine, {3, number - 1, {1 << 16, 2}, manifest}).code() ==
          absl::StatusCode::kAborted);
  REQUIRE(BeginUpdate(*f.engine, {3, number + 1, {1 << 16, 2}, manifest}).ok());
  REQUIRE(f.state() == RolloutState::kUpdating);
  // What the replaced one still says is not heard.
  REQUIRE(CommitUpdate(*f.engine, {3, number}, {}).code() == absl::StatusCode::kAborted);
  REQUIRE(AbortUpdate(*f.engine, {3, number}).ok());
  REQUIRE(f.state() == RolloutState::kUpdating);
  REQUIRE(AbortUpdate(*f.engine, {3, number + 1}).ok());
  REQUIRE(f.state() == RolloutState::kServing);
  REQUIRE(f.engine->status().version == 1);
  RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
}

TEST_CASE("An update that breaks off half way leaves the rollout empty, and the next one works") {
  EngineFixture f;
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
  EngineFixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  const auto running = std::make_shared<WaitingSink>();
  REQUIRE(f.engine->Generate(LongRequest(), running).ok());
  running->WaitForTokens(1);
  auto asleep = std::async(std::launch::async, [&] { return Sleep(*f.engine, {}).ok(); });
  // Either the gate is closed already, or this one still came in time; it never fails otherwise.
  const absl::Status late = Try(*f.engine, f.requests[0]);
  REQUIRE((late.ok() || late.code() == kPrecondition));
  REQUIRE(asleep.get());
  REQUIRE(running->Wait().samples.size() == 4);
  for (const Sample& sample : running->Wait().samples) {
    REQUIRE(sample.finish_reason == FinishReason::kLength);
  }
}

TEST_CASE("Sleep with abort ends running requests at once and an unknown level ends nothing") {
  EngineFixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  for (const bool drain_only : {false, true}) {
    const auto running = std::make_shared<WaitingSink>(), waiting = std::make_shared<WaitingSink>();
    GenerationRequest request = LongRequest();
    REQUIRE(f.engine->Generate(request, running).ok());
    request.request_id = "second";
    REQUIRE(f.engine->Generate(request, waiting).ok());
    running->WaitForTokens(1);
    SleepOrder order;
    order.abort_running = true;
    order.level = 7;
    REQUIRE(Sleep(*f.engine, order).status().code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(f.state() == RolloutState::kServing);
    order.level = 1;
    order.drain_only = drain_only;
    REQUIRE(Sleep(*f.engine, order).ok());
    REQUIRE(f.state() == RolloutState::kAsleep);
    // A stream that has ended is not ended twice, and none is left without an end.
    for (const auto& sink : {running, waiting}) {
      REQUIRE(sink->Wait().ends == 1);
      REQUIRE(sink->Wait().end.ok());
      REQUIRE(sink->Wait().samples.size() == 4);
      for (const Sample& sample : sink->Wait().samples) {
        REQUIRE(sample.finish_reason == FinishReason::kAborted);
      }
    }
    REQUIRE(f.engine->status().load.kv_blocks_used == 0);
    REQUIRE(Wake(*f.engine, {}).ok());
    RequireSame(GenerateAll(*f.engine, f.requests), Expected(f.weights, f.requests));
  }
}

TEST_CASE("Abort ends what is named, and a shutdown ends what is left") {
  EngineFixture f;
  REQUIRE(Publish(*f.engine, f.weights, 1).ok());
  GenerationRequest request = LongRequest();
  const auto first = std::make_shared<WaitingSink>(), second = std::make_shared<WaitingSink>();
  request.request_id = "first";
  REQUIRE(f.engine->Generate(request, first).ok());
  request.request_id = "second";
  REQUIRE(f.engine->Generate(request, second).ok());
  first->WaitForTokens(1);
  REQUIRE(Abort(*f.engine, {"first"}).value() == 1);
  REQUIRE(first->Wait().end.ok());
  REQUIRE(first->Wait().samples.at(0).finish_reason == FinishReason::kAborted);
  f.engine->Shutdown();
  const absl::Status end = second->Wait().end;
  REQUIRE((end.ok() || end.code() == absl::StatusCode::kUnavailable));
  REQUIRE(Wake(*f.engine, {}).status().code() == absl::StatusCode::kUnavailable);
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
