// Dynamic sampling over a rollout buffer of carried groups.
#include <catch2/catch.hpp>

#include "tests/controller/run/partial_loop.h"

namespace tandem {
namespace {

using testing::kTokens;
using testing::PartialRun;
using testing::TrainedOn;

constexpr char kPrefix[] = "training/filter_groups/";

// The samples of every third row are all worth the same.
void FilterThirdRows(testing::FakeRun& run) {
  run.options.filter_groups = {.enable = true, .metric = "right"};
  run.reward.value = [](uint64_t id) {
    return (id >> 24) % 3 == 0 ? 1.0 : static_cast<double>(id & 1);
  };
}

}  // namespace

TEST_CASE("Dynamic sampling takes from the buffer what its step lacks, and drops none beyond",
          "[partial][dynamic_sampling]") {
  for (const int64_t cap : {1, 3, 5}) {
    INFO("cap " << cap);
    PartialRun run(2);
    FilterThirdRows(run);
    run.options.partial.cap = cap;
    run.options.partial.groups_per_round = 3;
    REQUIRE(run.Run().ok());
    std::set<uint64_t> trained;
    int64_t evicted = 0;
    for (int64_t step = 1; step <= 5; ++step) {
      run.RequireBatch(step);
      for (const uint64_t row : run.RowsOf(step)) {
        REQUIRE(row % 3 != 0);
        REQUIRE(trained.insert(row).second);
      }
      REQUIRE(run.Metric(step, std::string(kPrefix) + "surplus_groups") == 0);
      evicted += run.Metric(step, std::string(kPrefix) + "evicted_groups");
    }
    REQUIRE(trained.size() == 10);
    REQUIRE(evicted > 0);
    REQUIRE(run.prompts.Position().row == 10 + evicted + run.rounds->buffer().Counts().groups);
  }
}

TEST_CASE("Dynamic sampling makes the same of a cap that no response reaches as of none",
          "[partial][dynamic_sampling]") {
  testing::FakeRun off(2);
  FilterThirdRows(off);
  REQUIRE(off.Run().ok());
  testing::FakeRun on(2);
  FilterThirdRows(on);
  on.options.partial = testing::PartialOptionsOf(on.options);
  on.options.partial.cap = kTokens;
  REQUIRE(on.Run().ok());
  REQUIRE(TrainedOn(on.store) == TrainedOn(off.store));
}

}  // namespace tandem
