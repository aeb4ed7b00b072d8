#include "controller/balance/largest_differencing.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Lists = std::vector<std::vector<int64_t>>;

std::vector<int64_t> RandomValues(std::mt19937_64& random, size_t count, int64_t largest) {
  std::vector<int64_t> values(count);
  for (int64_t& value : values) {
    value = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(largest));
  }
  return values;
}

std::vector<int64_t> Sums(const std::vector<int64_t>& values, const Lists& lists) {
  std::vector<int64_t> sums;
  for (const auto& list : lists) {
    sums.push_back(0);
    for (const int64_t item : list) sums.back() += values[static_cast<size_t>(item)];
  }
  return sums;
}

void RequirePermutation(const Lists& lists, size_t count) {
  std::vector<int64_t> items;
  for (const auto& list : lists) items.insert(items.end(), list.begin(), list.end());
  std::sort(items.begin(), items.end());
  std::vector<int64_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  REQUIRE(items == all);
}

TEST_CASE("Largest differencing splits a textbook example", "[balance]") {
  const std::vector<int64_t> values = {8, 7, 6, 5, 4};
  // By hand: 8-7 → 1, 6-5 → 1, 4-1 → 3, 3-1 → 2.
  REQUIRE(Sums(values, LargestDifferencing(values, 2, false)) == std::vector<int64_t>{16, 14});
}

TEST_CASE("Partitions hold every value once, of equal size where asked", "[balance]") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const auto parts = static_cast<int64_t>(1 + random() % 9);
    const bool equal = round % 2 == 0;
    const size_t extra = equal ? 0 : static_cast<size_t>(random() % 5);
    const size_t count = static_cast<size_t>(parts) * (1 + random() % 6) + extra;
    // Few different values: many ties.
    const auto values = RandomValues(random, count, round % 3 == 0 ? 3 : 100000);
    const Lists lists = LargestDifferencing(values, parts, equal);
    REQUIRE(std::ssize(lists) == parts);
    RequirePermutation(lists, count);
    for (const auto& list : lists) {
      if (equal) REQUIRE(std::ssize(list) * parts == std::ssize(values));
    }
  }
}

TEST_CASE("No part of a partition exceeds its even share by more than the largest value",
          "[balance]") {
  std::mt19937_64 random(2);
  for (int round = 0; round < 100; ++round) {
    const auto values = RandomValues(random, 40, 1000);
    const auto sums = Sums(values, LargestDifferencing(values, 4, false));
    const int64_t total = std::accumulate(values.begin(), values.end(), int64_t{0});
    const auto [least, most] = std::minmax_element(sums.begin(), sums.end());
    REQUIRE(*most * 4 <= total + 4 * *std::max_element(values.begin(), values.end()));
    REQUIRE(*most - *least <= *std::max_element(values.begin(), values.end()));
  }
}

TEST_CASE("Parts stay empty when values run out", "[balance]") {
  REQUIRE(LargestDifferencing({}, 2, false) == Lists{{}, {}});
  REQUIRE(LargestDifferencing({4}, 3, false) == Lists{{0}, {}, {}});
  // Zeros fill a list too.
  REQUIRE(LargestDifferencing({0, 0, 5}, 3, false) == Lists{{2}, {1}, {0}});
}

}  // namespace
}  // namespace tandem
