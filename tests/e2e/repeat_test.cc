// The same seed gives the same run, whatever the machine was doing; another seed another run.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

constexpr int kSteps = 2;
constexpr int kSamples = 4 * 4;

struct Run {
  Outcome outcome;
  std::vector<std::vector<std::string>> samples;  // by step: tokens, log-probs, versions
};

Run RunOf(int pairs, const std::map<std::string, std::string>& config) {
  // Responses of one length, so that the token arrays can be read from the samples file.
  ClusterRig rig(
      {.config = {{"trainer.total_training_steps", "2"}, {"rollout.ignore_eos", "true"}}});
  for (const auto& [key, value] : config) rig.Set(key, value);
  rig.SetPairs(pairs);
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  Run run{.outcome = OutcomeOf(rig, kSteps)};
  for (int step = 1; step <= kSteps; ++step) {
    run.samples.push_back(rig.StoredRecords(step, kSamples));
    REQUIRE(run.samples.back().size() == kSamples);
  }
  return run;
}

TEST_CASE("two runs of two pairs with one seed are equal to the last bit") {
  const Run first = RunOf(2, {}), second = RunOf(2, {});
  REQUIRE(first.samples == second.samples);
  REQUIRE(first.outcome.metrics == second.outcome.metrics);
  REQUIRE_FALSE(first.outcome.weights.empty());
  REQUIRE(first.outcome.weights == second.outcome.weights);

  const Run other = RunOf(2, {{"rollout.seed", "2"}});
  REQUIRE(other.samples[0] != first.samples[0]);
  REQUIRE(other.outcome.weights != first.outcome.weights);
  const Run other_order = RunOf(2, {{"data.seed", "2"}});
  REQUIRE(other_order.samples[0] != first.samples[0]);

  const Run one_pair = RunOf(1, {});
  REQUIRE(one_pair.samples[0] == first.samples[0]);
}

TEST_CASE("samples do not depend on what is decoded together, prefilled or shared") {
  const Run few =
      RunOf(1, {{"rollout.max_num_seqs", "2"}, {"rollout.max_num_batched_tokens", "32"}});
  const Run many = RunOf(1, {{"rollout.max_num_seqs", "64"}});
  REQUIRE(few.samples == many.samples);
  REQUIRE(few.outcome.weights == many.outcome.weights);
  const Run unshared = RunOf(1, {{"rollout.enable_prefix_caching", "false"}});
  REQUIRE(unshared.samples == many.samples);
  REQUIRE(unshared.outcome.weights == many.outcome.weights);
}

}  // namespace
}  // namespace tandem::testing
