#include "common/comm/sum_rounds.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::vector<ScatteredSum> Tensors(const std::vector<std::vector<int64_t>>& counts) {
  std::vector<ScatteredSum> sums;
  for (const auto& one : counts) sums.push_back({.counts_per_rank = one});
  return sums;
}

}  // namespace

TEST_CASE("every element of every tensor is in one round, at a place of its own") {
  const std::vector<ScatteredSum> sums =
      Tensors({{5, 5}, {100, 40}, {0, 0}, {64, 64}, {0, 7}, {1, 0}, {65, 65}});
  for (const int64_t room : {1, 16, 64, 1000}) {
    std::vector<int64_t> reached(sums.size());
    for (const SumRound& round : RoundsOf(sums, room)) {
      int64_t end = 0;
      for (const SumPart& part : round) {
        REQUIRE(part.begin == reached[part.sum]);
        REQUIRE(part.length > 0);
        REQUIRE(part.offset >= end);
        REQUIRE(part.offset % 16 == 0);
        end = part.offset + part.length;
        REQUIRE(end <= room);
        reached[part.sum] += part.length;
      }
    }
    REQUIRE(reached == std::vector<int64_t>{5, 100, 0, 64, 7, 1, 65});
  }
}

TEST_CASE("small tensors share a round, and one that fits the buffer is not cut") {
  const std::vector<SumRound> rounds =
      RoundsOf(Tensors({{10, 10}, {20, 20}, {60, 60}, {130, 130}, {4, 4}}), 64);
  // 10 and 20; 60; 64, 64 and 2 of 130 with the 4.
  REQUIRE(rounds.size() == 5);
  REQUIRE(rounds[0].size() == 2);
  REQUIRE(rounds[0][1].offset == 16);
  REQUIRE(rounds[1].size() == 1);
  REQUIRE(rounds[4].size() == 2);
  REQUIRE(rounds[4][0].begin == 128);
  REQUIRE(rounds[4][0].length == 2);
}

TEST_CASE("a call without elements has one round, in which ranks still meet") {
  REQUIRE(RoundsOf({}, 64) == std::vector<SumRound>(1));
  REQUIRE(RoundsOf(Tensors({{0, 0}}), 64) == std::vector<SumRound>(1));
}

TEST_CASE("a rank that has less takes less of a part") {
  const ScatteredSum sum{.counts_per_rank = {100, 40, 0}};
  const SumPart part{.begin = 30, .length = 64};
  REQUIRE(LengthOn(part, sum, 0) == 64);
  REQUIRE(LengthOn(part, sum, 1) == 10);
  REQUIRE(LengthOn(part, sum, 2) == 0);
  REQUIRE(PieceOffset(sum, 2) == 140);
  REQUIRE(SizesOf({sum, sum}) == std::vector<int64_t>{100, 40, 0, 100, 40, 0});
}

}  // namespace tandem
