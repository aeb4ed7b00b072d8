#include <cstring>

#include <catch2/catch.hpp>

#include "common/net/worker_codec.h"

namespace tandem {

TEST_CASE("Samples survive the wire in every field", "[wire]") {
  Sample sample;
  sample.sample_id = MakeSampleId(7, 1, 3);
  sample.group = 4;
  sample.index = 3;
  sample.tokens = {1, 2, 3, 4};
  sample.prompt_tokens = 2;
  sample.log_probs = {-0.5f, -0x1.fffffep-3f};
  sample.versions = {9, 10};
  sample.segments = {{.begin = 0, .length = 2, .trained = false, .weight_version = 0},
                     {.begin = 2, .length = 2, .trained = true, .weight_version = 9}};
  sample.finish_reason = FinishReason::kLength;
  sample.temperature = 0.7f;
  sample.off_support = true;
  sample.reward = 1.1;
  sample.advantages = {0.25f, 0.25f};
  sample.ref_log_probs = {-0.5f, -1.0f};
  sample.old_log_probs = {-0.25f, -2.0f};
  sample.is_weights = {0.5f, 2.0f};
  sample.mask = {0.0f, 1.0f};

  const Sample back = FromProto(ToProto(sample));
  REQUIRE(back.sample_id == sample.sample_id);
  REQUIRE(back.group == 4);
  REQUIRE(back.index == 3);
  REQUIRE(back.tokens == sample.tokens);
  REQUIRE(back.response_tokens() == 2);
  REQUIRE(back.log_probs == sample.log_probs);
  REQUIRE(back.versions == sample.versions);
  REQUIRE(back.segments.size() == 2);
  REQUIRE(back.segments[1].begin == 2);
  REQUIRE(back.segments[1].length == 2);
  REQUIRE(back.segments[1].trained);
  REQUIRE(back.segments[1].weight_version == 9);
  REQUIRE(back.finish_reason == FinishReason::kLength);
  REQUIRE(back.temperature == 0.7f);
  REQUIRE(back.off_support);
  REQUIRE(back.reward == 1.1);
  REQUIRE(back.advantages == sample.advantages);
  REQUIRE(back.ref_log_probs == sample.ref_log_probs);
  REQUIRE(back.old_log_probs == sample.old_log_probs);
  REQUIRE(back.is_weights == sample.is_weights);
  REQUIRE(back.mask == sample.mask);
}

TEST_CASE("Finish reasons map one to one", "[wire]") {
  for (FinishReason reason :
       {FinishReason::kNone, FinishReason::kStop, FinishReason::kLength, FinishReason::kAborted}) {
    REQUIRE(FromProto(ToProto(reason)) == reason);
  }
}

TEST_CASE("A worker's name survives the wire, and other roles are none of a worker", "[wire]") {
  v1::WorkerId id;
  for (const WorkerKey key : {WorkerKey{WorkerRole::kTrainer, 3}, {WorkerRole::kRollout, 0}}) {
    SetWorkerKey(key, &id);
    REQUIRE(WorkerKeyOf(id).value() == key);
  }
  id.set_role(v1::ROLE_UNSPECIFIED);
  REQUIRE(absl::IsInvalidArgument(WorkerKeyOf(id).status()));
}

TEST_CASE("Sampling parameters survive the wire", "[wire]") {
  SamplingParams params{.temperature = 0.5f,
                        .top_p = 0.9f,
                        .top_k = 40,
                        .max_tokens = 99,
                        .seed = 0xffffffffffffffffu,
                        .stop_token_ids = {2, 5},
                        .stop = {"\n\n", "END"},
                        .ignore_eos = true};
  const SamplingParams back = FromProto(ToProto(params));
  REQUIRE(back.temperature == params.temperature);
  REQUIRE(back.top_p == params.top_p);
  REQUIRE(back.top_k == 40);
  REQUIRE(back.max_tokens == 99);
  REQUIRE(back.seed == params.seed);
  REQUIRE(back.stop_token_ids == params.stop_token_ids);
  REQUIRE(back.stop == params.stop);
  REQUIRE(back.ignore_eos);
}

TEST_CASE("Ledgers and phase reports survive the wire", "[wire]") {
  const PhaseReport report{
      .phase = "train",
      .seconds = 1.5,
      .ledger = {.entries = {{.tag = "weights", .current_bytes = 10, .peak_bytes = 20},
                             {.tag = "optimizer", .location = Location::kHost, .peak_bytes = 5},
                             {.tag = "master", .location = Location::kFile}},
                 .device_bytes = 10,
                 .device_peak_bytes = 21,
                 .memory_bytes = 12,
                 .memory_peak_bytes = 23,
                 .process_bytes = 100,
                 .process_peak_bytes = 200,
                 .baseline_bytes = 60,
                 .resident_bytes = 30,
                 .driver_total_bytes = 1000,
                 .driver_free_bytes = 700}};
  const PhaseReport back = FromProto(ToProto(report));
  REQUIRE(back.phase == "train");
  REQUIRE(back.seconds == 1.5);
  REQUIRE(back.ledger.entries.size() == 3);
  REQUIRE(back.ledger.entries[0].peak_bytes == 20);
  REQUIRE(back.ledger.entries[1].location == Location::kHost);
  REQUIRE(back.ledger.entries[2].location == Location::kFile);
  REQUIRE(back.ledger.process_peak_bytes == 200);
  REQUIRE(back.ledger.device_bytes == 10);
  REQUIRE(back.ledger.device_peak_bytes == 21);
  REQUIRE(back.ledger.memory_bytes == 12);
  REQUIRE(back.ledger.memory_peak_bytes == 23);
  REQUIRE(back.ledger.unaccounted_bytes() == 10);
  REQUIRE(back.ledger.driver_total_bytes == 1000);
  REQUIRE(back.ledger.driver_free_bytes == 700);
}

TEST_CASE("Loads survive the conversion to protobuf and back", "[codec]") {
  const GeneratorLoad load{.queued = 1,
                           .running = 2,
                           .waiting = 3,
                           .kv_blocks = 4,
                           .kv_blocks_used = 5,
                           .preemptions = 6,
                           .generated_tokens = 7,
                           .prefill_tokens = 8,
                           .prefix_hit_tokens = 9,
                           .peak_version = 10,
                           .peak_waiting = 11,
                           .peak_kv_blocks_used = 12};
  const GeneratorLoad back = FromProto(ToProto(load));
  REQUIRE(std::memcmp(&load, &back, sizeof(load)) == 0);  // twelve numbers without padding
  const TrainingLoad training{
      .layer = "layer 7",
      .shard_bytes = 5,
      .last_collective = {
          .name = "all-gather", .bytes = 6, .running = true, .seconds = 1.5, .count = 7}};
  const TrainingLoad told = FromProto(ToProto(training));
  REQUIRE(told.layer == "layer 7");
  REQUIRE(told.shard_bytes == 5);
  REQUIRE(told.last_collective.name == "all-gather");
  REQUIRE(told.last_collective.bytes == 6);
  REQUIRE(told.last_collective.running);
  REQUIRE(told.last_collective.seconds == 1.5);
  REQUIRE(told.last_collective.count == 7);
}

}  // namespace tandem
