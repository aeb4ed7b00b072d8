#include <catch2/catch.hpp>

#include "controller/partial_rollout/tail_model.h"

namespace tandem {
namespace {

std::vector<SlotJob> Jobs(const std::vector<int64_t>& lengths) {
  std::vector<SlotJob> jobs;
  for (const int64_t length : lengths) jobs.push_back({.tokens = length});
  return jobs;
}

}  // namespace

TEST_CASE("Samples that all have a slot end at their own length", "[partial][slot_schedule]") {
  const SlotReplay replay = ReplaySlots(Jobs({5, 2, 9}), 3);
  REQUIRE(replay.ends[0].steps == 5);
  REQUIRE(replay.ends[1].steps == 2);
  REQUIRE(replay.ends[2].steps == 9);
  // Three run until step 2, two until step 5, then one.
  REQUIRE(replay.ends[1].tokens == 6);
  REQUIRE(replay.ends[0].tokens == 12);
  REQUIRE(replay.all.tokens == 16);
  REQUIRE(replay.all.steps == 9);
}

TEST_CASE("A free slot is taken at once by the next sample", "[partial][slot_schedule]") {
  const SlotReplay replay = ReplaySlots(Jobs({5, 2, 4, 1}), 2);
  REQUIRE(replay.ends[2].steps == 6);  // from step 2 on
  REQUIRE(replay.ends[3].steps == 6);  // from step 5 on
  REQUIRE(replay.all.steps == 6);
  REQUIRE(replay.all.tokens == 12);
  REQUIRE(ReplaySlots(Jobs({5, 2, 4, 1}), 1).all.steps == 12);
}

TEST_CASE("What is prefilled counts as tokens from when its sample gets a slot, and takes no step",
          "[partial][slot_schedule]") {
  const SlotReplay replay =
      ReplaySlots({{.prefill = 100, .tokens = 3}, {.tokens = 1}, {.prefill = 10, .tokens = 1}}, 2);
  REQUIRE(replay.ends[1].tokens == 102);
  REQUIRE(replay.ends[2].tokens == 114);
  REQUIRE(replay.all.tokens == 115);
  REQUIRE(replay.all.steps == 3);
}

TEST_CASE("No samples and empty responses take no steps", "[partial][slot_schedule]") {
  REQUIRE(ReplaySlots({}, 4).all.steps == 0);
  const SlotReplay replay = ReplaySlots(Jobs({0, 0, 2, 0}), 1);
  REQUIRE(replay.ends[1].steps == 0);
  REQUIRE(replay.ends[3].steps == 2);
  REQUIRE(replay.all.tokens == 2);
}

}  // namespace tandem
