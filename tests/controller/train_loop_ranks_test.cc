// What the number of ranks and replicas has to do with partial rollout in a train loop.
#include <catch2/catch.hpp>

#include "tests/controller/partial_loop.h"

namespace tandem {
namespace {

using testing::PartialRun;

}  // namespace

TEST_CASE("what the rollouts prefill is counted, and is what the rounds planned", "[partial]") {
  PartialRun run(2);
  run.options.partial.cap = 3;
  run.options.partial.groups_per_round = 3;
  REQUIRE(run.Run().ok());
  int64_t prefilled = 0, again = 0;
  for (int64_t step = 1; step <= 5; ++step) {
    prefilled += run.Metric(step, "partial/prefilled_tokens");
    again += run.Metric(step, "partial/prefilled_again_tokens");
  }
  REQUIRE(again > 0);
  // The first time a prompt of three tokens is no other.
  REQUIRE(prefilled == again + 3 * run.prompts.Position().row);

  // Of a step in which a rollout was lost it is not known.
  PartialRun lost(2);
  lost.options.partial = run.options.partial;
  lost.DieAt({WorkerRole::kRollout, 0}, "Generate", 1);
  REQUIRE(lost.Run().ok());
  REQUIRE_FALSE(lost.store.steps.at(1).metrics.contains("partial/prefilled_tokens"));
  REQUIRE(lost.Metric(2, "partial/prefilled_tokens") > 0);
}

}  // namespace tandem
