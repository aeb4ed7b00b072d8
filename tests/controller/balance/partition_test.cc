#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <catch2/catch.hpp>

#include "controller/balance/rank_assignment.h"

namespace tandem {
namespace {

using Parts = std::vector<std::vector<uint64_t>>;

// Groups with prompts of 50 to 500 tokens and responses up to `longest`.
std::vector<SampleLength> RandomGroups(std::mt19937_64& random,
                                       int64_t groups,
                                       uint64_t samples,
                                       uint64_t longest) {
  std::vector<SampleLength> lengths;
  for (int64_t group = 0; group < groups; ++group) {
    const auto prompt = static_cast<int64_t>(50 + random() % 450);
    for (uint64_t i = 0; i < samples; ++i) {
      lengths.push_back({.sample_id = static_cast<uint64_t>(group) * samples + i,
                         .tokens = prompt + 1 + static_cast<int64_t>(random() % longest),
                         .group = group,
                         .prompt_tokens = prompt});
    }
  }
  return lengths;
}

// Each rank's work, the prompt of a group once.
std::vector<int64_t> Loads(const std::vector<SampleLength>& samples, const Parts& parts) {
  std::vector<int64_t> loads;
  for (const auto& part : parts) {
    loads.push_back(0);
    std::set<int64_t> groups;
    for (const uint64_t id : part) {
      const SampleLength& sample = samples[id];
      const int64_t prompt = Workload(sample.prompt_tokens);
      loads.back() += Workload(sample.tokens) - prompt;
      if (groups.insert(sample.group).second) loads.back() += prompt;
    }
  }
  return loads;
}

double Imbalance(const std::vector<int64_t>& loads) {
  double sum = 0;
  for (const int64_t load : loads) sum += static_cast<double>(load);
  const auto highest = static_cast<double>(*std::max_element(loads.begin(), loads.end()));
  return highest * static_cast<double>(loads.size()) / sum;
}

TEST_CASE("Ranks' parts hold every sample once, in order, whatever order samples come in",
          "[partition]") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 60; ++round) {
    const auto samples = RandomGroups(random, 1 + static_cast<int64_t>(random() % 12),
                                      1 + random() % 6, round % 3 == 0 ? 3 : 4000);
    const int ranks = static_cast<int>(1 + random() % 9);
    const Parts parts = AssignSamplesToRanks(samples, ranks, Balance::kByLength);
    std::vector<SampleLength> shuffled = samples;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    REQUIRE(AssignSamplesToRanks(shuffled, ranks, Balance::kByLength) == parts);
    REQUIRE(std::ssize(parts) == ranks);
    std::vector<uint64_t> all;
    for (const auto& part : parts) {
      REQUIRE(std::is_sorted(part.begin(), part.end()));
      all.insert(all.end(), part.begin(), part.end());
    }
    std::sort(all.begin(), all.end());
    REQUIRE(all.size() == samples.size());
    for (size_t i = 0; i < all.size(); ++i) REQUIRE(all[i] == i);
  }
}

TEST_CASE("Groups are split only where ranks would be further than 1.05 from even", "[partition]") {
  std::mt19937_64 random(2);
  int whole = 0, split = 0;
  for (int round = 0; round < 60; ++round) {
    const auto samples = RandomGroups(random, 16, 8, 4000);
    const Parts parts = AssignSamplesToRanks(samples, round % 2 == 0 ? 2 : 8, Balance::kByLength);
    std::set<std::pair<size_t, int64_t>> places;
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      for (const uint64_t id : parts[rank]) places.insert({rank, samples[id].group});
    }
    REQUIRE(Imbalance(Loads(samples, parts)) <= 1.05);
    ++(places.size() == 16 ? whole : split);
  }
  REQUIRE(whole > split);
  REQUIRE(split > 0);
}

// Longest first: 8 | 7, 6 to 7, 5 to 8, 4 to either: 17 and 13. Differencing: 16 and 14.
TEST_CASE("Ranks are balanced by largest differencing", "[partition]") {
  std::vector<SampleLength> samples;
  for (const int64_t tokens : {8, 7, 6, 5, 4}) {
    samples.push_back({.sample_id = samples.size(),
                       .tokens = tokens,
                       .group = std::ssize(samples),
                       .prompt_tokens = 0});
  }
  std::vector<int64_t> tokens;
  for (const auto& part : AssignSamplesToRanks(samples, 2, Balance::kByLength)) {
    tokens.push_back(0);
    for (const uint64_t id : part) tokens.back() += samples[id].tokens;
  }
  REQUIRE(tokens == std::vector<int64_t>{16, 14});
}

TEST_CASE("Chunks of one group meet on a rank where that saves a prompt", "[partition]") {
  // Three chunks of one sample each, of equal work; two of them share a long prompt.
  const SampleLength a1{.sample_id = 2, .tokens = 110, .group = 7, .prompt_tokens = 100};
  const SampleLength a2{.sample_id = 3, .tokens = 110, .group = 7, .prompt_tokens = 100};
  const SampleLength b{.sample_id = 1, .tokens = 110, .group = 8, .prompt_tokens = 100};
  const std::vector<SampleChunk> chunks = {MakeChunk({a1}), MakeChunk({b}), MakeChunk({a2})};
  const int64_t own = Workload(110) - Workload(100);
  // Below the limit differencing is used, which does not know that prompts are shared.
  REQUIRE(AssignChunks(chunks, 2, 1e12).highest() == 2 * Workload(110));
  const RankAssignment assignment = AssignChunks(chunks, 2, 0);
  REQUIRE(assignment.highest() == Workload(110) + own);
  REQUIRE(assignment.load == std::vector<int64_t>{Workload(110), Workload(110) + own});
}

}  // namespace
}  // namespace tandem
