// Algorithms that need more than rewards of the samples: real processes, two pairs.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

double Metric(const Outcome& outcome, int64_t step, const std::string& name) {
  INFO("step " << step << ", " << name);
  return outcome.metrics.at(step).at(name).get<double>();
}

TEST_CASE(
    "the optimal token baseline trains, and a rollout correction of fresh data is exactly 1") {
  const Outcome outcome = RunUndisturbed(
      {.config = {{"algorithm.adv_estimator", "optimal_token_baseline"},
                  {"actor.old_log_prob", "recompute"},
                  {"algorithm.rollout_correction.rollout_is", "sequence"},
                  {"algorithm.rollout_correction.rollout_rs", "token_k3,seq_mean_k2"},
                  {"algorithm.rollout_correction.rollout_rs_threshold", "0.1,0.1"}}});
  RequireLearned(outcome, 3);
  for (int64_t step = 1; step <= 3; ++step) {
    REQUIRE(Metric(outcome, step, "rollout_corr/rollout_is_mean") == 1.0);
    REQUIRE(Metric(outcome, step, "rollout_corr/rollout_is_min") == 1.0);
    REQUIRE(Metric(outcome, step, "rollout_corr/rollout_is_max") == 1.0);
    REQUIRE(Metric(outcome, step, "rollout_corr/rollout_rs_masked_fraction") == 0.0);
    REQUIRE(Metric(outcome, step, "rollout_corr/kl") == 0.0);
    REQUIRE(Metric(outcome, step, "training/rollout_probs_diff_max") == 0.0);
    REQUIRE(Metric(outcome, step, "actor/ratio_max") == 1.0);
  }
  // The estimator did something: GRPO's run is another.
  REQUIRE(outcome.weights != Undisturbed().weights);
}

TEST_CASE("bypass mode corrects in the loss, and fresh data by exactly nothing") {
  const std::map<std::string, std::string> config = {
      {"algorithm.rollout_correction.bypass_mode", "true"},
      {"algorithm.rollout_correction.rollout_is", "token"},
      {"algorithm.rollout_correction.rollout_rs", "token_k1,seq_mean_k3"},
      {"algorithm.rollout_correction.rollout_rs_threshold", "1.001,0.001"}};
  for (const std::string type : {"ppo_clip", "reinforce"}) {
    INFO(type);
    std::map<std::string, std::string> with = config;
    with["algorithm.rollout_correction.loss_type"] = type;
    const Outcome outcome = RunUndisturbed({.config = with});
    RequireLearned(outcome, 3);
    for (int64_t step = 1; step <= 3; ++step) {
      REQUIRE(Metric(outcome, step, "rollout_corr/rollout_is_mean") == 1.0);
      REQUIRE(Metric(outcome, step, "rollout_corr/rollout_is_min") == 1.0);
      REQUIRE(Metric(outcome, step, "rollout_corr/rollout_is_max") == 1.0);
      REQUIRE(Metric(outcome, step, "rollout_corr/rollout_rs_masked_fraction") == 0.0);
      REQUIRE(Metric(outcome, step, "rollout_corr/kl") == 0.0);
      REQUIRE(Metric(outcome, step, "actor/ratio_max") == 1.0);
    }
    // The plain loss, as there is nothing to correct: vanilla's, or gpg's.
    const bool reinforce = type == "reinforce";
    const Outcome plain = reinforce
                              ? RunUndisturbed({.config = {{"actor.policy_loss.loss_mode", "gpg"}}})
                              : Undisturbed();
    REQUIRE(outcome.weights == plain.weights);
  }
}

TEST_CASE("bypass mode weighs and rejects tokens of weights that a step has moved") {
  const Outcome outcome =
      RunUndisturbed({.config = {{"algorithm.rollout_correction.bypass_mode", "true"},
                                 {"algorithm.rollout_correction.loss_type", "reinforce"},
                                 {"algorithm.rollout_correction.rollout_is", "token"},
                                 {"algorithm.rollout_correction.rollout_rs", "token_k1"},
                                 {"algorithm.rollout_correction.rollout_rs_threshold", "1.02"},
                                 {"actor.ppo_epochs", "2"},
                                 {"actor.optim.lr", "0.005"}}});
  RequireLearned(outcome, 3);
  double rejected = 0;
  for (int64_t step = 1; step <= 3; ++step) {
    REQUIRE(Metric(outcome, step, "rollout_corr/rollout_is_max") > 1.0);
    rejected += Metric(outcome, step, "rollout_corr/rollout_rs_masked_fraction");
    // No ratio beyond the bounds is trained on.
    REQUIRE(Metric(outcome, step, "actor/ratio_max") <= 1.0201);
    REQUIRE(Metric(outcome, step, "actor/ratio_min") >= 0.9803);
  }
  REQUIRE(rejected > 0);
  // The mini-batch before the first update is fresh.
  for (int64_t step = 1; step <= 3; ++step) {
    REQUIRE(Metric(outcome, step, "actor/first_ratio_min") == 1.0);
    REQUIRE(Metric(outcome, step, "actor/first_ratio_mean") == 1.0);
    REQUIRE(Metric(outcome, step, "actor/first_ratio_max") == 1.0);
  }
}

TEST_CASE("remax trains on rewards less those of greedy responses") {
  const Outcome outcome = RunUndisturbed({.config = {{"algorithm.adv_estimator", "remax"}}});
  RequireLearned(outcome, 3);
  REQUIRE(outcome.weights != Undisturbed().weights);
  // A reward is 0 or 1, and so is a baseline.
  for (int64_t step = 1; step <= 3; ++step) {
    REQUIRE(Metric(outcome, step, "critic/advantages/max") <= 1.0);
    REQUIRE(Metric(outcome, step, "critic/advantages/min") >= -1.0);
  }
}

TEST_CASE("tokens that are chosen over the mini-batch are the same in every run") {
  std::string before;
  for (const std::string loss : {"clip_cov", "kl_cov"}) {
    INFO(loss);
    const std::map<std::string, std::string> config = {
        {"actor.policy_loss.loss_mode", loss},   {"actor.policy_loss.clip_cov_ratio", "0.1"},
        {"actor.policy_loss.clip_cov_lb", "-1"}, {"actor.policy_loss.kl_cov_ratio", "0.1"},
        {"actor.ppo_mini_batch_size", "2"},      {"actor.optim.lr", "0.005"}};
    const Outcome first = RunUndisturbed({.config = config});
    RequireLearned(first, 3);
    const Outcome again = RunUndisturbed({.config = config});
    REQUIRE(again.metrics == first.metrics);
    REQUIRE(again.weights == first.weights);
    REQUIRE(first.weights != before);
    before = first.weights;
  }
}

// The samples of a step that dynamic sampling dropped, as tandemctl shows them.
nlohmann::json EvictedSamples(ClusterRig& rig, int64_t step) {
  const auto shown = rig.Ctl({"samples", rig.run_dir(), "--step", std::to_string(step), "--evicted",
                              "--limit", "999", "--json"});
  if (shown.code != 0) return nlohmann::json::array();
  return nlohmann::json::parse(shown.output).at("samples");
}

TEST_CASE("dynamic sampling fills a step with groups that differ, and tells which it dropped") {
  ClusterRig rig({.config = {{"rollout.n", "2"},
                             {"algorithm.filter_groups.enable", "true"},
                             {"algorithm.filter_groups.metric", "seq_reward"}}});
  rig.SetPairs(2);
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  const Outcome outcome = OutcomeOf(rig, 3);
  RequireLearned(outcome, 3);
  double batches = 0;
  for (int64_t step = 1; step <= 3; ++step) {
    batches += Metric(outcome, step, "training/filter_groups/num_gen_batches");
    // One of every group's two responses is right and one is wrong.
    REQUIRE(Metric(outcome, step, "critic/score/mean") == 0.5);
    REQUIRE(Metric(outcome, step, "critic/score/min") == 0.0);
    REQUIRE(Metric(outcome, step, "critic/score/max") == 1.0);
    const nlohmann::json evicted = EvictedSamples(rig, step);
    REQUIRE(static_cast<double>(evicted.size()) ==
            Metric(outcome, step, "training/filter_groups/evicted_samples") +
                2 * Metric(outcome, step, "training/filter_groups/surplus_groups"));
    for (const auto& sample : evicted) {
      REQUIRE(sample.at("evicted") == true);
      REQUIRE(sample.at("prompt") != "");
      REQUIRE(sample.at("response") == "");
    }
  }
  // About every second group is dropped: some step took another batch to fill.
  REQUIRE(batches > 3);
}

TEST_CASE("remax, dynamic sampling and a steered KL penalty train together") {
  const std::map<std::string, std::string> config = {
      {"algorithm.adv_estimator", "remax"},
      {"algorithm.filter_groups.enable", "true"},
      {"algorithm.filter_groups.metric", "seq_reward"},
      {"algorithm.use_kl_in_reward", "true"},
      {"algorithm.kl_ctrl.type", "adaptive"},
      {"algorithm.kl_ctrl.kl_coef", "0.5"},
      {"algorithm.kl_ctrl.horizon", "100"}};
  const Outcome outcome = RunUndisturbed({.config = config});
  RequireLearned(outcome, 3);
  for (int64_t step = 1; step <= 3; ++step) {
    REQUIRE(Metric(outcome, step, "training/filter_groups/num_gen_batches") >= 1);
    REQUIRE(Metric(outcome, step, "critic/score/mean") > 0.0);
    REQUIRE(Metric(outcome, step, "critic/score/mean") < 1.0);
  }
  REQUIRE(Metric(outcome, 2, "actor/reward_kl_penalty_coeff") < 0.5);
  const Outcome again = RunUndisturbed({.config = config});
  REQUIRE(again.metrics == outcome.metrics);
  REQUIRE(again.weights == outcome.weights);
}

}  // namespace
}  // namespace tandem::testing
