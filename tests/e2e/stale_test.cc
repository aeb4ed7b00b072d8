// How trainers treat tokens that older weights sampled, with real processes.
#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

// Responses of the tiny random model end at letters, so that some go on in later rounds and steps.
std::map<std::string, std::string> StaleCuts(std::map<std::string, std::string> settings) {
  settings.insert({{"rollout.stop", "[a, b, c, d, e, f, g, h, i, k, l, m, n, o, p, r, s, t, u, w]"},
                   {"rollout.n", "2"},
                   {"data.max_response_length", "32"},
                   {"rollout.partial.max_tokens_per_round", "6"},
                   {"rollout.partial.groups_per_round", "6"},
                   {"actor.optim.lr", "0.005"}});
  return settings;
}

// What holds of tokens of the step's own weights; a step may have none.
void RequireExact(const nlohmann::json& metrics) {
  const bool none = metrics.at("partial/stale_tokens_share") == 1.0;
  REQUIRE(metrics.contains("training/rollout_log_probs_identical") == !none);
  REQUIRE(metrics.contains("actor/first_ratio_mean") == !none);
  if (none) return;
  REQUIRE(metrics.at("training/rollout_log_probs_identical") == 1.0);
  for (const char* name : {"min", "mean", "max"}) {
    REQUIRE(metrics.at(std::string("actor/first_ratio_") + name) == 1.0);
  }
}

// A saved batch, and what its step's metrics say of it.
void RequireShown(const nlohmann::json& batch, const nlohmann::json& metrics) {
  const double tokens = metrics.at("partial/stale_tokens");
  REQUIRE(batch.at("mixed_samples") == metrics.at("partial/total_partial_num"));
  // The rollout's log-prob is the trainers', but for older tokens.
  const nlohmann::json& current = batch.at("ratio");
  if (!current.is_null()) REQUIRE(current.at("exactly_one") == current.at("tokens"));
  const nlohmann::json& stale = batch.at("stale_ratio");
  REQUIRE(stale.is_null() == (tokens == 0));
  if (tokens == 0) return;
  REQUIRE(stale.at("tokens") == tokens);
  REQUIRE(stale.at("max") ==
          Approx(metrics.at("partial/stale_ratio_max").get<double>()).epsilon(1e-6));
}

TEST_CASE("tokens of older weights are weighed by what they moved, those of the step's by 1") {
  ClusterRig rig({.config = StaleCuts({{"actor.old_log_prob", "recompute"},
                                       {"algorithm.rollout_correction.rollout_is", "token"},
                                       {"trainer.save_batch_freq", "1"}})});
  rig.SetPairs(2);
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(code == 0);
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.metrics.size() == 3);
  double stale = 0, mixed = 0, kl = 0;
  for (const auto& [step, metrics] : outcome.metrics) {
    INFO("step " << step << ": " << metrics.dump());
    RequireExact(metrics);
    // Recomputed log-probs are of the step's weights for every token.
    REQUIRE(metrics.at("actor/ratio_min") == 1.0);
    REQUIRE(metrics.at("actor/ratio_max") == 1.0);
    const std::string file = rig.run_dir() + "/batches/step_" + std::to_string(step) + ".batch";
    const auto shown = rig.Ctl({"batch", "inspect", file, "--json"});
    REQUIRE(shown.code == 0);
    RequireShown(nlohmann::json::parse(shown.output), metrics);
    mixed += metrics.at("partial/total_partial_num").get<double>();
    stale += metrics.at("partial/stale_tokens").get<double>();
    // The loss weighs by the ratio that the trainers report; others count 1.
    const bool all = metrics.at("partial/stale_tokens_share") == 1.0;
    double least = all ? INFINITY : 1.0, most = all ? -INFINITY : 1.0;
    if (metrics.contains("partial/stale_ratio_min")) {
      least = std::min(least, metrics.at("partial/stale_ratio_min").get<double>());
      most = std::max(most, metrics.at("partial/stale_ratio_max").get<double>());
      kl += metrics.at("partial/stale_kl").get<double>();
      REQUIRE(metrics.at("partial/staleness_max") >= 1);
    }
    REQUIRE(metrics.at("rollout_corr/rollout_is_min") == Approx(std::min(least, 2.0)));
    REQUIRE(metrics.at("rollout_corr/rollout_is_max") == Approx(std::min(most, 2.0)));
  }
  REQUIRE(stale > 0);
  REQUIRE(mixed > 0);
  REQUIRE(kl > 0);  // an update of no gradient or rate leaves the weights what they were
}

TEST_CASE("without recomputed log-probs the ratio of a token is to the weights that sampled it") {
  const Outcome outcome = RunUndisturbed({.config = StaleCuts({})});
  REQUIRE(outcome.metrics.size() == 3);
  double stale = 0, moved = 0;
  for (const auto& [step, metrics] : outcome.metrics) {
    INFO("step " << step << ": " << metrics.dump());
    RequireExact(metrics);
    stale += metrics.at("partial/stale_tokens").get<double>();
    const bool old = metrics.at("partial/stale_tokens") > 0;
    REQUIRE(metrics.contains("partial/stale_ratio_mean") == old);
    if (!old) continue;
    const double least = metrics.at("partial/stale_ratio_min");
    const double most = metrics.at("partial/stale_ratio_max");
    moved += most - least;
    REQUIRE(metrics.at("actor/ratio_min").get<double>() <= least);
    REQUIRE(metrics.at("actor/ratio_max").get<double>() >= most);
  }
  REQUIRE(stale > 0);
  REQUIRE(moved > 0);
}

}  // namespace
}  // namespace tandem::testing
