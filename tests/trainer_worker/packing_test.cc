#include "trainer_worker/packing.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

Sample MakeSample(uint64_t id, int64_t prompt, int64_t response) {
  Sample sample;
  sample.sample_id = id;
  sample.prompt_tokens = prompt;
  for (int64_t i = 0; i < prompt + response; ++i) {
    sample.tokens.push_back(static_cast<int32_t>(id * 10) + static_cast<int32_t>(i));
  }
  sample.segments = {{0, prompt, false, 0}, {prompt, response, true, 3}};
  return sample;
}

PackingLimits Limits(int64_t max_tokens, int64_t vocab) {
  return {.max_tokens = max_tokens, .max_sequence_tokens = 50, .vocab_limit = vocab};
}

TEST_CASE("Packing takes samples in order of id and fills micro-batches", "[packing]") {
  const std::vector<Sample> samples = {MakeSample(3, 2, 3), MakeSample(1, 2, 2),
                                       MakeSample(2, 1, 4)};
  const auto batches = PackSamples(samples, Limits(9, 1000));
  REQUIRE(batches.ok());
  REQUIRE(batches->size() == 2);
  REQUIRE((*batches)[0].sequences.size() == 2);
  REQUIRE((*batches)[0].sequences[0].sample == 1);
  REQUIRE((*batches)[0].sequences[1].sample == 2);
  REQUIRE((*batches)[0].tokens == std::vector<int32_t>{10, 11, 12, 13, 20, 21, 22, 23, 24});
  REQUIRE((*batches)[1].sequences[0].sample == 0);
}

TEST_CASE("Packing scores the row before each trained response token", "[packing]") {
  const auto batches = PackSamples({MakeSample(1, 2, 2), MakeSample(2, 1, 2)}, Limits(100, 1000));
  REQUIRE(batches.ok());
  const PackedBatch& batch = batches->front();
  REQUIRE(batch.scored_rows == std::vector<int32_t>{1, 2, 4, 5});
  REQUIRE(batch.targets == std::vector<int32_t>{12, 13, 21, 22});
  REQUIRE(batch.scored_sequence == std::vector<int32_t>{0, 0, 1, 1});
  REQUIRE(batch.scored_response == std::vector<int32_t>{0, 1, 0, 1});
}

TEST_CASE("Packing leaves tokens of untrained segments out of the scores", "[packing]") {
  Sample sample = MakeSample(1, 2, 6);
  sample.segments = {{0, 2, false, 0}, {2, 2, true, 1}, {4, 3, false, 0}, {7, 1, true, 1}};
  const auto batches = PackSamples({sample}, Limits(100, 1000));
  REQUIRE(batches.ok());
  REQUIRE(batches->front().targets == std::vector<int32_t>{12, 13, 17});
}

TEST_CASE("Packing reads temperature 0 as 1", "[packing]") {
  Sample greedy = MakeSample(1, 1, 1);
  greedy.temperature = 0.0f;
  Sample warm = MakeSample(2, 1, 1);
  warm.temperature = 0.7f;
  const auto batches = PackSamples({greedy, warm}, Limits(100, 1000));
  REQUIRE(batches.ok());
  REQUIRE(batches->front().temperatures == std::vector<float>{1.0f, 0.7f});
}

TEST_CASE("Packing of no samples is no micro-batch", "[packing]") {
  const auto batches = PackSamples({}, Limits(10, 10));
  REQUIRE(batches.ok());
  REQUIRE(batches->empty());
}

TEST_CASE("Packing refuses a sample longer than a micro-batch and names the key", "[packing]") {
  const auto batches = PackSamples({MakeSample(7, 5, 6)}, Limits(10, 1000));
  REQUIRE(batches.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string message(batches.status().message());
  REQUIRE(message.find("sample 7 has 11 tokens") != std::string::npos);
  REQUIRE(message.find("actor.ppo_max_token_len_per_gpu = 10") != std::string::npos);
}

TEST_CASE("Packing refuses a sample with more positions than the model was set up for",
          "[packing]") {
  const auto batches = PackSamples({MakeSample(7, 5, 46)}, Limits(100, 1000));
  REQUIRE(batches.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(batches.status().message()).find("max_model_len is 50") != std::string::npos);
}

TEST_CASE("Packing refuses ids beyond the tokenizer", "[packing]") {
  const auto batches = PackSamples({MakeSample(7, 5, 6)}, Limits(100, 80));
  REQUIRE(batches.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(batches.status().message()).find("token 80") != std::string::npos);
}

TEST_CASE("Packing refuses segments outside the sample", "[packing]") {
  Sample sample = MakeSample(1, 2, 2);
  sample.segments.back().length = 5;
  REQUIRE(PackSamples({sample}, Limits(100, 80)).status().code() ==
          absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
