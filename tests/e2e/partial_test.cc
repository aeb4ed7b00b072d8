// Partial rollout with real processes: the same bits where nothing is cut, and whichever process
// dies.
#include <csignal>
#include <fstream>
#include <set>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

using Settings = std::map<std::string, std::string>;

// Responses of the tiny random model end at letters, so that their lengths differ, and with two in
// a group those of groups, too.
Settings WithStops(Settings settings) {
  settings.insert({"rollout.stop", "[a, b, c, d, e, f, g, h, i, k, l, m, n, o, p, r, s, t, u, w]"});
  settings.insert({"rollout.n", "2"});
  settings.insert({"data.max_response_length", "32"});
  return settings;
}

// A few tokens more in every round, and more groups than a batch has.
Settings PartialCuts() {
  return WithStops(
      {{"rollout.partial.max_tokens_per_round", "6"}, {"rollout.partial.groups_per_round", "6"}});
}

Outcome RunWith(int pairs, const Settings& settings) {
  ClusterRig rig({.config = settings});
  rig.SetPairs(pairs);
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(code == 0);
  REQUIRE(rig.LeftBehind() == "");
  return OutcomeOf(rig, 3);
}

// That every log-prob of the steps' own weights agreed, in one step of `outcome` at least, and that
// something was learnt. A batch of older weights alone has none to compare.
void RequireAgreed(const Outcome& outcome, int64_t steps) {
  REQUIRE(std::ssize(outcome.metrics) == steps);
  double learned = 0, compared = 0;
  for (const auto& [step, metrics] : outcome.metrics) {
    const double identical = metrics.value("training/rollout_log_probs_identical", 1.0);
    REQUIRE(identical == 1.0);
    compared += metrics.count("training/rollout_log_probs_identical");
    learned += metrics.at("actor/grad_norm").get<double>();
  }
  REQUIRE(compared > 0);
  REQUIRE(learned > 0);
  REQUIRE_FALSE(outcome.weights.empty());
}

// Without the numbers that only partial rollout has.
std::map<int64_t, nlohmann::json> WithoutPartial(std::map<int64_t, nlohmann::json> steps) {
  for (auto& [step, metrics] : steps) {
    std::set<std::string> names;
    for (const auto& [name, value] : metrics.items()) {
      if (name.rfind("partial/", 0) == 0) names.insert(name);
    }
    for (const std::string& name : names) metrics.erase(name);
  }
  return steps;
}

double Sum(const Outcome& outcome, const std::string& name) {
  double sum = 0;
  for (const auto& [step, metrics] : outcome.metrics) sum += metrics.at(name).get<double>();
  return sum;
}

}  // namespace

TEST_CASE("a cap that no response reaches gives the bits of a run without partial rollout") {
  const Outcome off = RunWith(1, WithStops({}));
  const Outcome on = RunWith(1, WithStops({{"rollout.partial.max_tokens_per_round", "32"}}));
  RequireAgreed(off, 3);
  REQUIRE(on.weights == off.weights);
  REQUIRE(WithoutPartial(on.metrics) == WithoutPartial(off.metrics));
}

TEST_CASE("samples that are cut go on under later weights, and every log-prob agrees") {
  const Outcome one = RunWith(1, PartialCuts());
  RequireAgreed(one, 3);
  for (const auto& [step, metrics] : one.metrics) {
    INFO("step " << step << ": " << metrics.dump());
    REQUIRE(metrics.value("actor/first_ratio_min", 1.0) == 1.0);
    REQUIRE(metrics.value("actor/first_ratio_max", 1.0) == 1.0);
    UNSCOPED_INFO("step " << step << ": " << metrics.dump());
  }
  REQUIRE(Sum(one, "partial/rounds") > 3);
  REQUIRE(Sum(one, "partial/cut_samples") > 0);
  REQUIRE(Sum(one, "partial/total_partial_num") > 0);
  REQUIRE(Sum(one, "partial/prefilled_again_tokens") > 0);
  // Which replica goes on with a sample makes no difference.
  const Outcome two = RunWith(2, PartialCuts());
  REQUIRE(two.metrics.at(1).at("critic/rewards/mean") ==
          one.metrics.at(1).at("critic/rewards/mean"));
  REQUIRE(two.metrics.at(1).at("partial/cut_samples") ==
          one.metrics.at(1).at("partial/cut_samples"));
}

TEST_CASE("a worker or the controller is killed between rounds: the run comes to the same bits") {
  const RigOptions options{.config = PartialCuts()};
  const Outcome undisturbed = RunUndisturbed(options);
  REQUIRE(Sum(undisturbed, "partial/total_partial_num") > 0);
  RequireRecovery({"controller", 0, "train", 2}, options, undisturbed);
  RequireRecovery({"rollout", 1, "generate", 3}, options, undisturbed);
  RequireRecovery({"trainer", 0, "train", 2}, options, undisturbed);
}

TEST_CASE("a cap of one token is a run of many rounds") {
  const Outcome outcome = RunWith(
      1, {{"rollout.partial.max_tokens_per_round", "1"}, {"data.max_response_length", "4"}});
  RequireAgreed(outcome, 3);
  for (const auto& [step, metrics] : outcome.metrics) REQUIRE(metrics.at("partial/rounds") == 4);
}

TEST_CASE("cuts by groups are made again as they were") {
  ClusterRig rig({.config = WithStops({{"rollout.partial.until_groups", "4"},
                                       {"rollout.partial.groups_per_round", "7"},
                                       {"rollout.max_num_seqs", "4"}})});
  rig.SetPairs(1);
  const std::string marker = "samples/step_000002.samples";
  // Step 2 has its batch, and its trainers are about to train.
  rig.SetFault("controller", 0, "train", 2, "stop");
  TestProcess& launcher = rig.Launch();
  rig.WaitForFault("the controller's stop", launcher);
  INFO(rig.Log("launcher") << rig.Log("controller"));
  const std::string before = rig.RunFile(marker);
  REQUIRE_FALSE(before.empty());
  launcher.Signal(SIGKILL);
  launcher.Wait();
  WaitUntil("the end of all", [&] { return rig.Running().empty(); });
  REQUIRE(rig.Launch().Wait() == 0);
  // Behind the samples the file now has its index.
  REQUIRE((rig.RunFile(marker).substr(0, before.size()) == before));
  RequireAgreed(OutcomeOf(rig, 3), 3);
}

TEST_CASE("generation goes on while the trainers train, and every log-prob agrees") {
  Settings settings = WithStops({{"rollout.partial.overlap", "true"},
                                 {"rollout.free_cache_engine", "false"},
                                 {"rollout.partial.max_staleness", "1"}});
  const Outcome outcome = RunWith(2, settings);
  RequireAgreed(outcome, 3);
  REQUIRE(Sum(outcome, "partial/overlap_tokens") > 0);
  REQUIRE(Sum(outcome, "partial/stale_tokens") > 0);
}

}  // namespace tandem::testing
