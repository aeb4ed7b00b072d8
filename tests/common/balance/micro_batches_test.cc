#include "common/balance/micro_batches.h"

#include <algorithm>
#include <random>

#include <catch2/catch.hpp>

#include "common/balance/workload.h"

namespace tandem {
namespace {

using Lists = std::vector<std::vector<int64_t>>;

std::vector<int64_t> RandomLengths(std::mt19937_64& random, size_t count) {
  std::vector<int64_t> lengths(count);
  for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random() % 100);
  return lengths;
}

int64_t TokensOf(const std::vector<int64_t>& lengths, const std::vector<int64_t>& list) {
  int64_t tokens = 0;
  for (const int64_t item : list) tokens += lengths[static_cast<size_t>(item)];
  return tokens;
}

TEST_CASE("Micro-batches hold every sequence once and stay within the limit", "[balance]") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    MicroBatchOptions options{.max_tokens = 200, .small_ends = round % 2 == 0};
    options.group_size = 1 + round % 2;
    options.multiple = round % 5 == 0 ? 2 : 1;
    const auto lengths = RandomLengths(random, 4 * (2 + random() % 8));
    const auto batches = RearrangeMicroBatches(lengths, options);
    REQUIRE(batches.ok());
    REQUIRE(std::ssize(*batches) % options.multiple == 0);
    for (const auto& batch : *batches) REQUIRE(TokensOf(lengths, batch) <= options.max_tokens);
    for (const auto& batch : *batches) {
      for (size_t i = 0; i < batch.size(); i += static_cast<size_t>(options.group_size)) {
        REQUIRE(batch[i] % options.group_size == 0);
        REQUIRE((options.group_size == 1 || batch[i + 1] == batch[i] + 1));
      }
    }
    REQUIRE(ReverseIndex(*batches).ok());
  }
}

TEST_CASE("The reverse index restores the order that micro-batches changed", "[balance]") {
  std::mt19937_64 random(4);
  bool forward_differs = false;
  for (int round = 0; round < 50; ++round) {
    const auto lengths = RandomLengths(random, 12);
    const auto batches = RearrangeMicroBatches(lengths, {.max_tokens = 150});
    REQUIRE(batches.ok());
    std::vector<int64_t> results;  // of sequence i: i, in the order of the micro-batches
    for (const auto& batch : *batches) results.insert(results.end(), batch.begin(), batch.end());
    const auto reverse = ReverseIndex(*batches);
    std::vector<int64_t> restored, wrong;
    for (size_t i = 0; i < results.size(); ++i) {
      restored.push_back(results[static_cast<size_t>((*reverse)[i])]);
      wrong.push_back(results[static_cast<size_t>(results[i])]);  // permuted again, not back
    }
    REQUIRE(std::is_sorted(restored.begin(), restored.end()));
    forward_differs = forward_differs || wrong != restored;
  }
  REQUIRE(forward_differs);
}

TEST_CASE("Micro-batches with little work stand at both ends", "[balance]") {
  const std::vector<int64_t> lengths = {10, 20, 30, 40, 50};
  REQUIRE(*RearrangeMicroBatches(lengths, {.max_tokens = 50, .min_batches = 5}) ==
          Lists{{0}, {2}, {4}, {3}, {1}});
}

TEST_CASE("A rank makes as many micro-batches as another one needs", "[balance]") {
  REQUIRE(RearrangeMicroBatches({10, 10, 10, 10}, {.max_tokens = 100})->size() == 1);
  REQUIRE(RearrangeMicroBatches({10, 10, 10, 10}, {.max_tokens = 100, .min_batches = 3})->size() ==
          3);
}

TEST_CASE("Micro-batches that cannot be made are refused", "[balance]") {
  const auto refused = [](const std::vector<int64_t>& lengths, const MicroBatchOptions& options) {
    return RearrangeMicroBatches(lengths, options).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  REQUIRE(refused({}, {.max_tokens = 10}));
  REQUIRE(refused({0}, {.max_tokens = 0}));
  REQUIRE(refused({11}, {.max_tokens = 10}));
  REQUIRE(refused({6, 5}, {.max_tokens = 10, .group_size = 2}));
  REQUIRE(refused({1, 1, 1}, {.max_tokens = 10, .group_size = 2}));
  REQUIRE(refused({1, 1}, {.max_tokens = 10, .min_batches = 3}));
  REQUIRE(refused({1, 1, 1}, {.max_tokens = 10, .min_batches = 3, .multiple = 2}));
}

TEST_CASE("A list that is no permutation has no reverse", "[balance]") {
  REQUIRE(*ReverseIndex({{2, 0}, {1}}) == std::vector<int64_t>{1, 2, 0});
  REQUIRE_FALSE(ReverseIndex({{0, 0}}).ok());
  REQUIRE_FALSE(ReverseIndex({{0, 2}}).ok());
  REQUIRE_FALSE(ReverseIndex({{-1, 0}}).ok());
}

TEST_CASE("The workload grows with the square of long sequences", "[balance]") {
  REQUIRE(Workload(0) == 0);
  REQUIRE(Workload(1) == 24577);
  REQUIRE(Workload(131072) == int64_t{131072} * (24576 + 131072));
}

}  // namespace
}  // namespace tandem
