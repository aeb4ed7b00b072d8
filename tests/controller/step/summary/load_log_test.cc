#include "controller/step/summary/load_log.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

absl::Time At(int64_t second) { return absl::FromUnixSeconds(second); }

}  // namespace

TEST_CASE("Load is kept by rollout and time until it is taken", "[step_metrics]") {
  LoadLog log;
  log.Note(1, {.running = 4}, At(10));
  log.Note(0, {.running = 2}, At(11));
  log.Note(1, {.running = 5, .kv_blocks_used = 3}, At(12));
  const std::vector<LoadRecord> taken = log.Take();
  REQUIRE(taken.size() == 3);
  REQUIRE(taken[0].rank == 0);
  REQUIRE(taken[1].load.running == 4);
  REQUIRE(taken[2].time_us == 12'000'000);
  REQUIRE(taken[2].load.kv_blocks_used == 3);
  REQUIRE(log.Take().empty());
}

TEST_CASE("However long a step is, its load is few records at even distances", "[step_metrics]") {
  for (const int64_t heartbeats : {63, 64, 65, 127, 128, 129, 1000, 4096, 5001}) {
    INFO(heartbeats);
    LoadLog log;
    for (int64_t second = 0; second < heartbeats; ++second) log.Note(0, {}, At(second));
    const std::vector<LoadRecord> taken = log.Take();
    REQUIRE(taken.size() <= LoadLog::kMostOfRollout);
    REQUIRE(taken.size() >
            std::min<size_t>(LoadLog::kMostOfRollout / 2, static_cast<size_t>(heartbeats) - 1) - 1);
    const int64_t distance = taken[1].time_us - taken[0].time_us;
    REQUIRE(taken[0].time_us == 0);
    for (size_t i = 1; i < taken.size(); ++i) {
      REQUIRE(taken[i].time_us - taken[i - 1].time_us == distance);
    }
    REQUIRE(heartbeats - 1 - taken.back().time_us / 1'000'000 < distance / 1'000'000);
  }
}

}  // namespace tandem
