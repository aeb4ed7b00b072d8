#include "trainer_worker/forward_backward/packing.h"

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
  const auto batches = PackSamples(samples, Limits(7, 1000));
  REQUIRE(batches.ok());
  REQUIRE(batches->size() == 2);
  REQUIRE((*batches)[0].sequences.size() == 2);
  REQUIRE((*batches)[0].sequences[0].sample == 1);
  REQUIRE((*batches)[0].sequences[1].sample == 2);
  REQUIRE((*batches)[0].tokens == std::vector<int32_t>{10, 11, 12, 20, 21, 22, 23});
  REQUIRE((*batches)[1].sequences[0].sample == 0);
}

TEST_CASE("Packing scores the row before each trained response token", "[packing]") {
  const auto batches = PackSamples({MakeSample(1, 2, 2), MakeSample(2, 1, 2)}, Limits(100, 1000));
  REQUIRE(batches.ok());
  const PackedBatch& batch = batches->front();
  REQUIRE(batch.scored_rows == std::vector<int32_t>{1, 2, 3, 4});
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

TEST_CASE("Packing leaves out rows behind which nothing is scored", "[packing]") {
  Sample masked = MakeSample(1, 3, 4);
  masked.segments = {{0, 3, false, 0}, {3, 2, true, 1}, {5, 2, false, 0}};
  Sample untrained = MakeSample(2, 2, 4);
  untrained.segments = {{0, 6, false, 0}};
  const auto batches = PackSamples({masked, untrained}, Limits(100, 1000));
  REQUIRE(batches.ok());
  REQUIRE(batches->front().tokens == std::vector<int32_t>{10, 11, 12, 13, 20, 21});
  REQUIRE(batches->front().scored_rows == std::vector<int32_t>{2, 3});
}

// Samples 1.. of one prompt [90, 91, 92] with responses of these lengths.
std::vector<Sample> OneGroup(const std::vector<int64_t>& responses) {
  std::vector<Sample> samples;
  for (const int64_t response : responses) {
    samples.push_back(MakeSample(samples.size() + 1, 3, response));
    for (int32_t i = 0; i < 3; ++i) samples.back().tokens[static_cast<size_t>(i)] = 90 + i;
  }
  return samples;
}

TEST_CASE("Packing gives the prompt of a group one set of rows", "[packing]") {
  std::vector<Sample> samples = OneGroup({2, 1, 3});
  samples.push_back(MakeSample(4, 2, 2));
  const auto batches = PackSamples(samples, Limits(100, 1000));
  REQUIRE(batches.ok());
  REQUIRE(batches->size() == 1);
  const PackedBatch& batch = batches->front();
  REQUIRE(batch.tokens == std::vector<int32_t>{90, 91, 92, 13, 33, 34, 40, 41, 42});
  REQUIRE(batch.scored_rows == std::vector<int32_t>{2, 3, 2, 2, 4, 5, 7, 8});
  REQUIRE(batch.targets == std::vector<int32_t>{13, 14, 23, 33, 34, 35, 42, 43});
  REQUIRE(batch.scored_sequence == std::vector<int32_t>{0, 0, 1, 2, 2, 2, 3, 3});
  REQUIRE(batch.sequences[1].rows == 0);
  REQUIRE(batch.sequences[2].prefix == 0);
  REQUIRE(batch.sequences[2].prefix_rows == 3);
  REQUIRE(batch.sequences[3].prefix == -1);
}

TEST_CASE("Packing repeats a prompt in each micro-batch and counts rows and scores", "[packing]") {
  const std::vector<Sample> samples = OneGroup({4, 4, 4});
  const auto rows = PackSamples(samples, Limits(9, 1000));
  REQUIRE(rows.ok());
  REQUIRE(rows->size() == 2);
  REQUIRE((*rows)[0].rows() == 9);
  REQUIRE((*rows)[1].rows() == 6);
  REQUIRE((*rows)[1].sequences[0].prefix == -1);
  // One row each after the prompt's, but two scores.
  const auto scores = PackSamples(OneGroup({2, 2, 2, 2, 2}), Limits(9, 1000));
  REQUIRE(scores.ok());
  REQUIRE(scores->size() == 2);
  REQUIRE((*scores)[0].scored() == 8);
}

TEST_CASE("Packing does not share where it is told not to", "[packing]") {
  PackingLimits limits = Limits(100, 1000);
  limits.share_prompts = false;
  const auto batches = PackSamples(OneGroup({2, 2}), limits);
  REQUIRE(batches.ok());
  REQUIRE(batches->front().rows() == 8);
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

TEST_CASE("Packing of no samples is not a micro-batch", "[packing]") {
  const auto batches = PackSamples({}, Limits(10, 10));
  REQUIRE(batches.ok());
  REQUIRE(batches->empty());
}

TEST_CASE("Packing refuses a sample longer than a micro-batch and names the key", "[packing]") {
  const auto batches = PackSamples({MakeSample(0x17, 5, 6)}, Limits(10, 1000));
  REQUIRE(batches.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string message(batches.status().message());
  REQUIRE(message.find("sample 0x17 has 11 tokens") != std::string::npos);
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
