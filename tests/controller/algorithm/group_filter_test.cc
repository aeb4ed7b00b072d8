#include "controller/algorithm/group_filter.h"

#include <cmath>

#include <catch2/catch.hpp>

#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;
using FilterVerdict = GroupFilter::Verdict;

}  // namespace

TEST_CASE("A group is dropped when all its samples are equal, and only then", "[filter]") {
  GroupFilter filter({.enable = true}, 10);
  REQUIRE(filter.Judge({0, 0, 0}) == FilterVerdict::kAllEqual);
  REQUIRE(filter.Judge({1, 1}) == FilterVerdict::kAllEqual);
  REQUIRE(filter.Judge({0, 0, 1}) == FilterVerdict::kKept);
  REQUIRE(filter.Judge({1, 0, 0}) == FilterVerdict::kKept);
  // The deviation of three tenths is not 0 in floating point.
  REQUIRE(filter.Judge({0.1, 0.1, 0.1}) == FilterVerdict::kAllEqual);
  REQUIRE(filter.Judge({0.1, 0.1, std::nextafter(0.1, 1)}) == FilterVerdict::kKept);
  REQUIRE(filter.Judge({0.0, -0.0}) == FilterVerdict::kAllEqual);
  REQUIRE(filter.kept() == 3);
  REQUIRE(filter.all_equal() == 4);
  REQUIRE(filter.mean_of_all_equal() == Approx(1.1 / 4));
}

TEST_CASE("A full step takes no further group", "[filter]") {
  GroupFilter filter({.enable = true}, 2);
  REQUIRE(std::isnan(filter.mean_of_all_equal()));
  REQUIRE(filter.Judge({0, 1}) == FilterVerdict::kKept);
  REQUIRE_FALSE(filter.full());
  REQUIRE(filter.Judge({0, 1}) == FilterVerdict::kKept);
  REQUIRE(filter.full());
  REQUIRE(filter.Judge({0, 1}) == FilterVerdict::kSurplus);
  REQUIRE(filter.Judge({1, 1}) == FilterVerdict::kAllEqual);
  REQUIRE(filter.kept() == 2);
  REQUIRE(filter.surplus() == 1);
}

TEST_CASE("The last batch that is allowed must fill the step", "[filter]") {
  for (const bool fills : {true, false}) {
    GroupFilter filter({.enable = true, .metric = "acc", .max_batches = 3}, 2);
    for (int batch = 0; batch < 2; ++batch) {
      filter.Judge({0, 0});
      filter.Judge({1, batch == 0 ? 1.0 : 0.0});
      REQUIRE(filter.EndBatch().ok());
    }
    filter.Judge({0, 0});
    filter.Judge({0, fills ? 1.0 : 0.0});
    const absl::Status status = filter.EndBatch();
    REQUIRE(filter.batches() == 3);
    if (fills) {
      REQUIRE(status.ok());
      continue;
    }
    REQUIRE(absl::IsOutOfRange(status));
    REQUIRE(Says(status, "3 batches of 2 prompts were generated, and only 1 of the 2 groups "));
    REQUIRE(Says(status, "differ in \"acc\"; 5 groups were dropped"));
    REQUIRE(Says(status, ": 4 with 0, 1 with 1. "));
    REQUIRE(Says(status, "algorithm.filter_groups.max_num_gen_batches (now 3)"));
  }
}

TEST_CASE("Groups that come a few at a time are counted in batches", "[filter]") {
  GroupFilter filter({.enable = true, .max_batches = 2}, 3);
  REQUIRE(filter.missing() == 3);
  filter.Judge({0, 1});
  filter.Judge({0, 0});
  filter.Judge({0, 0});
  REQUIRE(filter.EndBatch().ok());
  REQUIRE(filter.missing() == 2);
  for (int group = 0; group < 2; ++group) {
    filter.Judge({0, 0});
    REQUIRE(filter.EndBatch().ok());
    REQUIRE(filter.batches() == 2);
  }
  filter.Judge({0, 0});
  REQUIRE(absl::IsOutOfRange(filter.EndBatch()));
}

TEST_CASE("Without a limit a hundred batches are one", "[filter]") {
  GroupFilter filter({.enable = true}, 8);
  absl::Status status;
  for (int batch = 0; status.ok(); ++batch) {
    REQUIRE(batch < 100);
    for (int group = 0; group < 8; ++group) {
      const double value = 0.25 * (group + 8 * (batch % 2));
      filter.Judge({value, value});
    }
    status = filter.EndBatch();
  }
  REQUIRE(filter.batches() == 100);
  REQUIRE(Says(status, "only 0 of the 8"));
  REQUIRE(Says(status,
               "50 with 0, 50 with 0.25, 50 with 0.5, 50 with 0.75, 50 with 1 and 11 "
               "other values"));
  REQUIRE(Says(status, "100 is the limit as algorithm.filter_groups.max_num_gen_batches is 0"));
}

}  // namespace tandem
