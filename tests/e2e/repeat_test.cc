// The same seed gives the same run, whatever the machine was doing; another seed another run.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

constexpr int kRepeatSteps = 2;
constexpr int kRepeatSamples = 4 * 4;

struct RepeatedRun {
  Outcome outcome;
  std::vector<std::vector<std::string>> samples;  // by step: tokens, log-probs, versions
};

RepeatedRun RepeatableRun(int pairs, const std::map<std::string, std::string>& config) {
  ClusterRig rig(
      {.config = {{"trainer.total_training_steps", "2"}, {"rollout.ignore_eos", "true"}}});
  for (const auto& [key, value] : config) rig.Set(key, value);
  rig.SetPairs(pairs);
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  RepeatedRun run{.outcome = OutcomeOf(rig, kRepeatSteps)};
  for (int step = 1; step <= kRepeatSteps; ++step) {
    run.samples.push_back(rig.StoredRecords(step));
    REQUIRE(run.samples.back().size() == kRepeatSamples);
  }
  return run;
}

TEST_CASE("two runs of two pairs with one seed are equal to the last bit") {
  const RepeatedRun first = RepeatableRun(2, {}), second = RepeatableRun(2, {});
  REQUIRE(first.samples == second.samples);
  REQUIRE(first.outcome.metrics == second.outcome.metrics);
  REQUIRE_FALSE(first.outcome.weights.empty());
  REQUIRE(first.outcome.weights == second.outcome.weights);

  const RepeatedRun other = RepeatableRun(2, {{"rollout.seed", "2"}});
  REQUIRE(other.samples[0] != first.samples[0]);
  REQUIRE(other.outcome.weights != first.outcome.weights);
  const RepeatedRun other_order = RepeatableRun(2, {{"data.seed", "2"}});
  REQUIRE(other_order.samples[0] != first.samples[0]);

  const RepeatedRun one_pair = RepeatableRun(1, {});
  REQUIRE(one_pair.samples[0] == first.samples[0]);
}

TEST_CASE("samples do not depend on what is decoded together, prefilled or shared") {
  const RepeatedRun few =
      RepeatableRun(1, {{"rollout.max_num_seqs", "2"}, {"rollout.max_num_batched_tokens", "32"}});
  const RepeatedRun many = RepeatableRun(1, {{"rollout.max_num_seqs", "64"}});
  REQUIRE(few.samples == many.samples);
  REQUIRE(few.outcome.weights == many.outcome.weights);
  const RepeatedRun unshared = RepeatableRun(1, {{"rollout.enable_prefix_caching", "false"}});
  REQUIRE(unshared.samples == many.samples);
  REQUIRE(unshared.outcome.weights == many.outcome.weights);
}

}  // namespace
}  // namespace tandem::testing
