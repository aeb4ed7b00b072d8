#include <catch2/catch.hpp>

#include "controller/balance/rank_assignment.h"

namespace tandem {
namespace {

TEST_CASE("The imbalance compares ranks' shares with runs of neighbours", "[balance]") {
  const SeqlenImbalance imbalance = MeasureImbalance({1, 2, 3, 10}, {{0, 3}, {1, 2}});
  REQUIRE(imbalance.min == 3);
  REQUIRE(imbalance.max == 13);
  REQUIRE(imbalance.balanced_min == 5);
  REQUIRE(imbalance.balanced_max == 11);
  REQUIRE(imbalance.mean == 8.0);
}

TEST_CASE("A shorter last run of neighbours counts, as in verl", "[balance]") {
  REQUIRE(MeasureImbalance({5, 5, 5, 5, 2}, {{0, 4}, {1, 2, 3}}).min == 2);
}

TEST_CASE("Fewer sequences than ranks, and none, have an imbalance too", "[balance]") {
  const SeqlenImbalance one = MeasureImbalance({7}, {{}, {0}});
  REQUIRE(one.min == 7);
  REQUIRE(one.balanced_min == 0);
  REQUIRE(one.balanced_max == 7);
  REQUIRE(one.mean == 3.5);
  REQUIRE(MeasureImbalance({}, {{}, {}}).mean == 0.0);
}

TEST_CASE("The workload grows with the square of long sequences", "[balance]") {
  REQUIRE(Workload(0) == 0);
  REQUIRE(Workload(1) == 24577);
  REQUIRE(Workload(131072) == int64_t{131072} * (24576 + 131072));
}

}  // namespace
}  // namespace tandem
