#include <catch2/catch.hpp>

#include "controller/partial_rollout/tail_model.h"

namespace tandem {
namespace {

// Groups of one sample each.
std::vector<ReplayGroup> Singles(const std::vector<int64_t>& lengths, int64_t prompt = 0) {
  std::vector<ReplayGroup> groups;
  for (const int64_t length : lengths) groups.push_back({prompt, {length}});
  return groups;
}

}  // namespace

TEST_CASE("A cap that nothing reaches gives one round a batch", "[partial][round_replay]") {
  const RoundTotals totals = ReplayRounds(Singles({5, 9, 2}), {.cap = 9, .slots = 3});
  REQUIRE(totals.rounds == kCountedRounds);
  REQUIRE(totals.whole_groups == 3 * kCountedRounds);
  REQUIRE(totals.steps == 9 * kCountedRounds);
  REQUIRE(totals.tokens == 16 * kCountedRounds);
  REQUIRE(totals.prefilled_again == 0);
}

TEST_CASE("Equal lengths take as many rounds as caps, and prefill again each time",
          "[partial][round_replay]") {
  // Rounds of 4, 4 and 2 tokens; 10 + 4 are prefilled in the second and 10 + 8 in the third.
  const RoundTotals totals = ReplayRounds(Singles({10, 10}, 10), {.cap = 4, .slots = 2});
  const int64_t batches = kCountedRounds / 3;
  REQUIRE(totals.whole_groups == 2 * batches);
  REQUIRE(totals.steps == 10 * batches);
  REQUIRE(totals.prefilled_again == 2 * batches * (14 + 18));
  REQUIRE(totals.tokens == 2 * batches * (10 + 10 + 14 + 18));
}

TEST_CASE("Rounds of a step are the mean rounds of its groups", "[partial][round_replay]") {
  // Seven groups of one round and one of three: 10 group-rounds for 8 groups.
  const RoundTotals totals =
      ReplayRounds(Singles({4, 4, 4, 4, 4, 4, 4, 12}), {.cap = 4, .slots = 8});
  REQUIRE(totals.rounds == kCountedRounds);
  const double rounds =
      8.0 * static_cast<double>(totals.rounds) / static_cast<double>(totals.whole_groups);
  REQUIRE(rounds == Approx(1.25).epsilon(0.02));
  REQUIRE(totals.steps == 4 * kCountedRounds);
}

TEST_CASE("Samples of a group are carried alone, their prompt is prefilled once for them",
          "[partial][round_replay]") {
  // In its second round two of the three go on, with 4 tokens each.
  const RoundTotals totals =
      ReplayRounds({{.prompt_tokens = 100, .lengths = {3, 8, 8}}}, {.cap = 4, .slots = 8});
  const int64_t batches = kCountedRounds / 2;
  REQUIRE(totals.whole_groups == batches);
  REQUIRE(totals.prefilled_again == batches * (100 + 4 + 4));
  REQUIRE(totals.tokens == batches * (100 + 19 + 108));
}

TEST_CASE("Under the last version that it may have a sample runs to its end",
          "[partial][round_replay]") {
  // Each long one gets 4 tokens in a first round, 4 in a second that fills a batch with the short
  // one, and 92 under the next version: two rounds of 4 and 92 steps for two groups.
  const RoundTotals totals =
      ReplayRounds(Singles({4, 100}), {.cap = 4, .max_versions = 2, .slots = 2});
  REQUIRE(totals.whole_groups == kCountedRounds);
  REQUIRE(totals.steps == (4 + 92) * kCountedRounds / 2);
}

TEST_CASE("Rounds without a batch have the same version", "[partial][round_replay]") {
  // Nothing is whole for 25 rounds, and no version is made meanwhile: the cap holds to the end.
  const RoundTotals totals =
      ReplayRounds(Singles({100, 100}), {.cap = 4, .max_versions = 2, .slots = 2});
  REQUIRE(totals.steps == 4 * kCountedRounds);
}

TEST_CASE("A replay ends where no group becomes whole", "[partial][round_replay]") {
  const RoundTotals totals = ReplayRounds(Singles({1'000'000}), {.cap = 1, .slots = 1});
  REQUIRE(totals.whole_groups == 0);
  REQUIRE(totals.rounds == kMostRounds);
  REQUIRE(ReplayRounds({}, {.cap = 1, .slots = 1}).rounds == 0);
}

}  // namespace tandem
