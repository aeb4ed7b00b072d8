#include "controller/data/shuffled_prompts.h"

#include <set>

#include <catch2/catch.hpp>

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {

std::vector<Prompt> Rows(int count) {
  std::vector<Prompt> rows(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) rows[static_cast<size_t>(i)].text = std::to_string(i);
  return rows;
}

std::vector<uint64_t> Draw(ShuffledPrompts& source, int64_t n) {
  std::vector<uint64_t> drawn;
  const std::vector<Prompt> batch = source.NextBatch(n).value();
  for (const Prompt& prompt : batch) drawn.push_back(prompt.data_row);
  return drawn;
}

}  // namespace

TEST_CASE("Permutation is a bijection for every size", "[data][permutation]") {
  for (uint64_t size : {1, 2, 3, 5, 16, 17, 100, 1000}) {
    const Permutation order(size, 3, 4);
    std::set<uint64_t> images;
    for (uint64_t i = 0; i < size; ++i) images.insert(order(i));
    REQUIRE(images.size() == size);
    REQUIRE(*images.rbegin() == size - 1);
  }
}

TEST_CASE("Permutation changes with seed and epoch", "[data][permutation]") {
  const auto head = [](uint64_t seed, uint64_t epoch) {
    const Permutation order(1000, seed, epoch);
    return std::vector<uint64_t>{order(0), order(1), order(2), order(3)};
  };
  REQUIRE(head(1, 0) == head(1, 0));
  REQUIRE(head(1, 0) != head(2, 0));
  REQUIRE(head(1, 0) != head(1, 1));
}

TEST_CASE("ShuffledPrompts draws every row once an epoch and drops the rest", "[data][prompts]") {
  ShuffledPrompts source(Rows(10), {true, 7});
  std::set<uint64_t> seen;
  for (int i = 0; i < 3; ++i) {
    for (uint64_t row : Draw(source, 3)) seen.insert(row);
  }
  REQUIRE(seen.size() == 9);
  REQUIRE(source.Position() == DataPosition{0, 9});
  const auto next = source.NextBatch(3).value();
  REQUIRE(next[0].epoch == 1);
  REQUIRE(source.Position() == DataPosition{1, 3});
}

TEST_CASE("ShuffledPrompts resumes at any position with the same batches", "[data][prompts]") {
  ShuffledPrompts source(Rows(10), {true, 7});
  Draw(source, 4);
  const DataPosition middle = source.Position();
  const auto expected = Draw(source, 4);
  ShuffledPrompts resumed(Rows(10), {true, 7});
  REQUIRE(resumed.Restore(middle).ok());
  REQUIRE(Draw(resumed, 4) == expected);
}

TEST_CASE("ShuffledPrompts refuses too large a batch and a foreign position", "[data][prompts]") {
  ShuffledPrompts source(Rows(10), {false, 0});
  REQUIRE(Draw(source, 3) == std::vector<uint64_t>{0, 1, 2});
  REQUIRE(source.NextBatch(11).status().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(source.Restore({0, 11}).code() == absl::StatusCode::kFailedPrecondition);
}
