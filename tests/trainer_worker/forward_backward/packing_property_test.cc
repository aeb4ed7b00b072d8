// Properties of packing for any samples: each appears once, in rows that are its tokens, its scores
// are of its own successors, limits hold, nothing depends on the order of arrival.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <catch2/catch.hpp>

#include "common/types/response_tokens.h"
#include "trainer_worker/forward_backward/packing.h"

namespace tandem {
namespace {

constexpr int64_t kMaxTokens = 64;

std::vector<int32_t> RandomTokens(std::mt19937_64& random, int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random() % 1000));
  return tokens;
}

// A response of `length` in segments that are trained or not.
void AddResponse(std::mt19937_64& random, int64_t length, Sample& sample) {
  const auto tokens = RandomTokens(random, length);
  sample.tokens.insert(sample.tokens.end(), tokens.begin(), tokens.end());
  for (int64_t begin = sample.prompt_tokens; begin < std::ssize(sample.tokens);) {
    const int64_t left = std::ssize(sample.tokens) - begin;
    const int64_t count = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(left));
    sample.segments.push_back({begin, count, random() % 4 != 0, 0});
    begin += count;
  }
}

// Groups of one to four samples, some without response or without a trained token.
std::vector<Sample> RandomGroups(std::mt19937_64& random) {
  std::vector<Sample> samples;
  const auto groups = static_cast<int64_t>(1 + random() % 8);
  for (int64_t group = 0; group < groups; ++group) {
    const auto prompt = RandomTokens(random, 1 + static_cast<int64_t>(random() % 12));
    const uint64_t size = 1 + random() % 4;
    for (uint64_t i = 0; i < size; ++i) {
      Sample sample;
      sample.sample_id = MakeSampleId(static_cast<uint64_t>(group), 0, i);
      sample.group = group;
      sample.tokens = prompt;
      sample.prompt_tokens = std::ssize(prompt);
      sample.segments = {{0, sample.prompt_tokens, false, 0}};
      sample.temperature = random() % 2 == 0 ? 1.0f : 0.5f;
      AddResponse(random, static_cast<int64_t>(random() % 30), sample);
      samples.push_back(std::move(sample));
    }
  }
  return samples;
}

std::vector<PackedBatch> Pack(const std::vector<Sample>& samples, bool share = true) {
  const auto batches = PackSamples(samples, {.max_tokens = kMaxTokens,
                                             .max_sequence_tokens = kMaxTokens,
                                             .vocab_limit = 1000,
                                             .share_prompts = share});
  INFO(batches.status().ToString());
  REQUIRE(batches.ok());
  return *batches;
}

// The tokens that a sequence sees: rows of the prompt that it shares, then its own.
std::vector<int32_t> RowsSeen(const PackedBatch& batch, size_t index) {
  const PackedBatch::Sequence& sequence = batch.sequences[index];
  std::vector<int32_t> rows;
  if (sequence.prefix >= 0) {
    const int64_t first = batch.sequences[static_cast<size_t>(sequence.prefix)].first_row;
    rows.assign(batch.tokens.begin() + first, batch.tokens.begin() + first + sequence.prefix_rows);
  }
  const auto own = batch.tokens.begin() + sequence.first_row;
  rows.insert(rows.end(), own, own + sequence.rows);
  return rows;
}

// The trained response tokens of a sample.
std::vector<int64_t> TrainedTokensOf(const Sample& sample) {
  std::vector<int64_t> trained;
  for (const Segment& segment : sample.segments) {
    for (int64_t i = segment.begin; segment.trained && i < segment.begin + segment.length; ++i) {
      trained.push_back(WindowOf(sample).ResponseOf(i));
    }
  }
  return trained;
}

TEST_CASE("Packing is a permutation of the samples, and its inverse restores their order",
          "[packing]") {
  std::mt19937_64 random(11);
  bool wrong_differs = false;
  for (int round = 0; round < 100; ++round) {
    std::vector<Sample> samples = RandomGroups(random);
    std::shuffle(samples.begin(), samples.end(), random);
    std::vector<size_t> order;      // samples as packed
    std::vector<uint64_t> results;  // of these, in this order: their ids
    for (const PackedBatch& batch : Pack(samples)) {
      for (const PackedBatch::Sequence& sequence : batch.sequences) {
        order.push_back(static_cast<size_t>(sequence.sample));
        results.push_back(samples.at(order.back()).sample_id);
      }
    }
    REQUIRE(order.size() == samples.size());
    REQUIRE(std::set<size_t>(order.begin(), order.end()).size() == samples.size());
    std::vector<uint64_t> ids, restored(order.size()), wrong;
    for (const Sample& sample : samples) ids.push_back(sample.sample_id);
    for (size_t i = 0; i < order.size(); ++i) {
      restored[order[i]] = results[i];
      wrong.push_back(results[order[i]]);  // permuted again, not back
    }
    REQUIRE(restored == ids);
    wrong_differs = wrong_differs || wrong != ids;
  }
  REQUIRE(wrong_differs);
}

TEST_CASE("No micro-batch has more rows or scores than the limit, none is empty", "[packing]") {
  std::mt19937_64 random(12);
  for (int round = 0; round < 100; ++round) {
    const std::vector<Sample> samples = RandomGroups(random);
    for (const bool share : {true, false}) {
      for (const PackedBatch& batch : Pack(samples, share)) {
        REQUIRE(batch.rows() <= kMaxTokens);
        REQUIRE(batch.scored() <= kMaxTokens);
        REQUIRE_FALSE(batch.sequences.empty());
      }
    }
  }
}

TEST_CASE("A micro-batch has the rows of its sequences and no padding", "[packing]") {
  std::mt19937_64 random(13);
  for (int round = 0; round < 100; ++round) {
    const std::vector<Sample> samples = RandomGroups(random);
    for (const PackedBatch& batch : Pack(samples)) {
      int64_t rows = 0;
      for (size_t i = 0; i < batch.sequences.size(); ++i) {
        const PackedBatch::Sequence& sequence = batch.sequences[i];
        REQUIRE(sequence.first_row == rows);
        rows += sequence.rows;
        const Sample& sample = samples[static_cast<size_t>(sequence.sample)];
        const std::vector<int32_t> seen = RowsSeen(batch, i);
        REQUIRE(std::ssize(seen) >= sample.prompt_tokens);
        REQUIRE(std::equal(seen.begin(), seen.end(), sample.tokens.begin()));
        // No row behind the last one that scores something.
        const auto trained = TrainedTokensOf(sample);
        const int64_t needed = trained.empty() ? 0 : WindowOf(sample).RowOf(trained.back()) + 1;
        REQUIRE(std::ssize(seen) == std::max(needed, sample.prompt_tokens));
      }
      REQUIRE(rows == batch.rows());
    }
  }
}

TEST_CASE("Every trained response token is scored once, by the row before it", "[packing]") {
  std::mt19937_64 random(14);
  for (int round = 0; round < 100; ++round) {
    const std::vector<Sample> samples = RandomGroups(random);
    std::map<uint64_t, std::vector<int64_t>> scored;
    for (const PackedBatch& batch : Pack(samples)) {
      for (size_t i = 0; i < batch.targets.size(); ++i) {
        const Sample& sample = ScoredSample(batch, samples, i);
        const int64_t response = batch.scored_response[i];
        const ResponseWindow window = WindowOf(sample);
        REQUIRE(batch.targets[i] == sample.tokens[static_cast<size_t>(window.TokenOf(response))]);
        const auto row = static_cast<size_t>(batch.scored_rows[i]);
        REQUIRE(batch.tokens[row] == sample.tokens[static_cast<size_t>(window.RowOf(response))]);
        scored[sample.sample_id].push_back(response);
      }
    }
    for (const Sample& sample : samples) {
      REQUIRE(scored[sample.sample_id] == TrainedTokensOf(sample));
    }
  }
}

TEST_CASE("Packing does not depend on the order in which samples arrive", "[packing]") {
  std::mt19937_64 random(15);
  for (int round = 0; round < 50; ++round) {
    std::vector<Sample> samples = RandomGroups(random);
    const std::vector<PackedBatch> before = Pack(samples);
    std::vector<Sample> shuffled = samples;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    const std::vector<PackedBatch> after = Pack(shuffled);
    REQUIRE(after.size() == before.size());
    for (size_t b = 0; b < before.size(); ++b) {
      REQUIRE(after[b].tokens == before[b].tokens);
      REQUIRE(after[b].scored_rows == before[b].scored_rows);
      REQUIRE(after[b].targets == before[b].targets);
      REQUIRE(after[b].temperatures == before[b].temperatures);
      REQUIRE(after[b].scored_sequence == before[b].scored_sequence);
      REQUIRE(after[b].scored_response == before[b].scored_response);
      for (size_t i = 0; i < before[b].sequences.size(); ++i) {
        const auto sample_of = [&](const std::vector<Sample>& all, const PackedBatch& batch) {
          return all[static_cast<size_t>(batch.sequences[i].sample)].sample_id;
        };
        REQUIRE(sample_of(shuffled, after[b]) == sample_of(samples, before[b]));
      }
    }
  }
}

TEST_CASE(
    "Two neighbouring micro-batches together exceed the limit: none is half empty for nothing",
    "[packing]") {
  std::mt19937_64 random(16);
  for (int round = 0; round < 100; ++round) {
    const std::vector<PackedBatch> batches = Pack(RandomGroups(random), /*share=*/false);
    for (size_t b = 1; b < batches.size(); ++b) {
      const int64_t rows = batches[b - 1].rows() + batches[b].sequences.front().rows;
      REQUIRE(rows > kMaxTokens);
    }
  }
}

// As engines make labels: the packed tokens rolled back by one. Of a row at a sequence's end that
// is the next sequence's first token; a window one later scores it.
TEST_CASE("No score reads a label beyond the end of its sequence", "[packing][alignment]") {
  Sample first, second;
  first.sample_id = 1, second.sample_id = 2;
  first.tokens = {10, 11, 12, 13}, second.tokens = {20, 21, 22};
  first.prompt_tokens = 2, second.prompt_tokens = 1;
  first.segments = {{0, 2, false, 0}, {2, 2, true, 0}};
  second.segments = {{0, 1, false, 0}, {1, 2, true, 0}};
  const std::vector<Sample> samples = {first, second};
  std::vector<int32_t> stream, wrong;
  for (const Sample& sample : samples) {
    stream.insert(stream.end(), sample.tokens.begin(), sample.tokens.end());
  }
  std::vector<int32_t> rolled = stream;
  std::rotate(rolled.begin(), rolled.begin() + 1, rolled.end());
  std::vector<int32_t> right;
  size_t begin = 0;
  for (const Sample& sample : samples) {
    const ResponseWindow window = WindowOf(sample);
    for (int64_t t = 0; t < window.response_tokens; ++t) {
      right.push_back(rolled[begin + static_cast<size_t>(window.RowOf(t))]);
      wrong.push_back(rolled[begin + static_cast<size_t>(window.TokenOf(t))]);
    }
    begin += sample.tokens.size();
  }
  REQUIRE(wrong == std::vector<int32_t>{13, 20, 22, 10});
  REQUIRE(Pack(samples).front().targets == right);
  REQUIRE(right == std::vector<int32_t>{12, 13, 21, 22});
}

// A row that several samples score has no temperature of its own.
TEST_CASE("A score has the temperature of its own sample, not of the row's first", "[packing]") {
  std::vector<Sample> samples(3);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].sample_id = i + 1;
    samples[i].tokens = {5, 6, static_cast<int32_t>(10 + i), 20};
    samples[i].prompt_tokens = 2;
    samples[i].segments = {{0, 2, false, 0}, {2, 2, true, 0}};
  }
  samples[1].temperature = 0.5f;
  samples[2].temperature = 0.0f;  // greedy: at 1
  const PackedBatch batch = Pack(samples).front();
  std::map<int32_t, float> of_row;
  std::vector<float> wrong;
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    of_row.emplace(batch.scored_rows[i], batch.temperatures[i]);
    wrong.push_back(of_row.at(batch.scored_rows[i]));
  }
  const std::vector<float> right = {1.0f, 1.0f, 0.5f, 0.5f, 1.0f, 1.0f};
  REQUIRE(wrong != right);
  REQUIRE(batch.temperatures == right);
}

TEST_CASE("Packing refuses a sample without prompt", "[packing][alignment]") {
  Sample sample;
  sample.sample_id = 0x13;
  sample.tokens = {1, 2};
  sample.prompt_tokens = 0;
  sample.segments = {{0, 2, true, 0}};
  const auto batches =
      PackSamples({sample}, {.max_tokens = 8, .max_sequence_tokens = 8, .vocab_limit = 10});
  REQUIRE(batches.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(batches.status().message())
              .find("sample 0x13 has 2 tokens and claims a prompt "
                    "of 0") != std::string::npos);
}

}  // namespace
}  // namespace tandem
