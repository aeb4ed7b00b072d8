#include "controller/step/run_length.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

LengthLimit Limit(int64_t seconds, int64_t fewest = 1) {
  return {.time = absl::Seconds(seconds), .fewest = fewest};
}

// The first step, which took as long as every other will.
MeasuredStep First(double step_seconds, double validation_seconds = 0) {
  return {.step = 1,
          .step_time = absl::Seconds(step_seconds),
          .spent = absl::Seconds(step_seconds + validation_seconds)};
}

}  // namespace

TEST_CASE("A run has the steps that end in time beside its validations", "[run_length]") {
  REQUIRE(StepsWithin(Limit(300), 50, First(20)) == 15);
  REQUIRE(StepsWithin(Limit(300), 50, First(19, 20)) == 14);
  REQUIRE(StepsWithin(Limit(300), 50, First(2, 20)) == 50);
  REQUIRE(StepsWithin(Limit(0), 50, First(1000)) == 50);
}

TEST_CASE("A run has its fewest steps, those that it made and no more than all", "[run_length]") {
  REQUIRE(StepsWithin(Limit(300, 8), 50, First(100)) == 8);
  REQUIRE(StepsWithin(Limit(300, 80), 50, First(100)) == 50);
  REQUIRE(StepsWithin(Limit(10), 50, First(100)) == 1);
  REQUIRE(StepsWithin(Limit(10), 50, First(1, 100)) == 1);
  REQUIRE(StepsWithin(Limit(1'000'000'000), 50, First(1e-9)) == 50);
  REQUIRE(StepsWithin(Limit(300), 50, First(0)) == 50);
}

TEST_CASE("What other steps took is spent, and the newest tells of those to come", "[run_length]") {
  const MeasuredStep second{
      .step = 2, .step_time = absl::Seconds(20), .spent = absl::Seconds(30 + 20 + 10)};
  REQUIRE(StepsWithin(Limit(300), 50, second) == 14);
  // Steps of an earlier process cost nothing.
  const MeasuredStep resumed{
      .step = 12, .step_time = absl::Seconds(20), .spent = absl::Seconds(40)};
  REQUIRE(StepsWithin(Limit(300), 50, resumed) == 25);
}

}  // namespace tandem
