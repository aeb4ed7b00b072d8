// Partial rollout in a train loop with several ranks and replicas.
#include <map>
#include <set>

#include <catch2/catch.hpp>

#include "tests/controller/run/partial_loop.h"

namespace tandem {
namespace {

using testing::PartialRun;
using testing::TrainedOn;

}  // namespace

TEST_CASE("R3: finished counts that do not divide by the ranks: every sample of the batch has one",
          "[partial]") {
  // Batches of 3 groups of 3, so that neither groups nor samples divide by 2 ranks; rounds of 5
  // groups that any number of samples finish in.
  const auto configure = [](PartialRun& run) {
    run.options.train_batch_size = 3;
    run.options.mini_batch_prompts = 3;
    run.options.samples_per_prompt = 3;
    run.options.partial = testing::PartialOptionsOf(run.options);
    run.options.partial.groups_per_round = 5;
    run.options.partial.cap = 3;
  };
  PartialRun one(1);
  configure(one);
  REQUIRE(one.Run().ok());
  PartialRun two(2);
  configure(two);
  // Of each step, by the rank that trains it.
  std::map<int64_t, std::vector<std::vector<uint64_t>>> assigned;
  two.on_forward_backward = [&](const ForwardBackwardCall& command, ForwardBackwardReply&) {
    for (const int rank : {0, 1}) {
      assigned[command.step].push_back(*two.samples->Assigned(command.step, -1, rank));
    }
  };
  REQUIRE(two.Run().ok());
  bool odd = false;
  for (int64_t step = 1; step <= 5; ++step) {
    two.RequireBatch(step);
    const auto& ranks = assigned.at(step);
    REQUIRE(ranks.size() == 2);
    std::set<uint64_t> all(ranks[0].begin(), ranks[0].end());
    all.insert(ranks[1].begin(), ranks[1].end());
    REQUIRE(all.size() == 9);
    REQUIRE(ranks[0].size() + ranks[1].size() == 9);
    REQUIRE_FALSE(ranks[0].empty());
    REQUIRE_FALSE(ranks[1].empty());
    const int64_t finished =
        two.Metric(step, "partial/issued_samples") - two.Metric(step, "partial/cut_samples");
    odd = odd || finished % 2 != 0;
  }
  REQUIRE(odd);
  // And how many there are makes no difference to what is trained on.
  REQUIRE(TrainedOn(two.store) == TrainedOn(one.store));
}

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
