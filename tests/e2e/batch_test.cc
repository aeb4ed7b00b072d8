// A run with a steered KL penalty and a warmup-stable-decay rate saves a batch, and tandemctl reads
// it without the run.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

TEST_CASE("a saved batch is read after the run, and its ratios are exactly 1") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "4"},
                             {"trainer.save_freq", "-1"},
                             {"trainer.save_batch_freq", "3"},
                             {"algorithm.use_kl_in_reward", "true"},
                             {"algorithm.kl_ctrl.type", "adaptive"},
                             {"algorithm.kl_ctrl.kl_coef", "0.5"},
                             {"algorithm.kl_ctrl.horizon", "100"},
                             {"actor.old_log_prob", "recompute"},
                             {"actor.optim.lr_scheduler_type", "wsd"},
                             {"actor.optim.lr_warmup_steps_ratio", "0.25"},
                             {"actor.optim.stable_ratio", "0.34"},
                             {"actor.optim.min_lr_ratio", "0.1"}}});
  rig.SetPairs(2);
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  const Outcome outcome = OutcomeOf(rig, 4);
  const auto metric = [&](int64_t step, const std::string& name) {
    return outcome.metrics.at(step).at(name);
  };
  // Of four steps one warms up, one stays, two come down: factors 0, 1, 1 and the middle.
  const double peak = metric(2, "actor/lr");
  REQUIRE(metric(1, "actor/lr") == 0);
  REQUIRE(peak > 0);
  REQUIRE(metric(3, "actor/lr") == peak);
  REQUIRE(metric(4, "actor/lr") == Approx(0.55 * peak));
  // Less KL than the target: down by a fifth of the samples in the horizon each step.
  REQUIRE(metric(1, "actor/reward_kl_penalty_coeff") == 0.5);
  REQUIRE(metric(2, "actor/reward_kl_penalty_coeff") < 0.5);

  REQUIRE_FALSE(rig.HasRunFile("batches/step_2.batch"));
  const std::string file = rig.run_dir() + "/batches/step_3.batch";
  const auto text = rig.Ctl({"batch", "inspect", file});
  INFO(text.output);
  REQUIRE(text.code == 0);
  REQUIRE(text.output.find("step 3, sampled by weight version 2") != std::string::npos);
  REQUIRE(text.output.find("all values are finite") != std::string::npos);
  const auto shown = rig.Ctl({"batch", "inspect", file, "--json"});
  REQUIRE(shown.code == 0);
  const auto batch = nlohmann::json::parse(shown.output);
  REQUIRE(batch.at("samples") == 16);
  REQUIRE(batch.at("ratio").at("tokens") == batch.at("response_tokens"));
  REQUIRE(batch.at("ratio").at("exactly_one") == batch.at("response_tokens"));
  REQUIRE(batch.at("ratio").at("min") == 1);
  REQUIRE(batch.at("ratio").at("max") == 1);
  REQUIRE(batch.at("ratio").at("worst").contains("text"));
  REQUIRE(batch.at("fields").contains("ref_log_probs"));
  REQUIRE(rig.Ctl({"batch", "inspect", rig.run_dir() + "/run.db"}).code == 65);
}

// A rollout that computes wrongly, where the probe does not look.
TEST_CASE("a run that a difference ends saves its step, and the difference with it") {
  ClusterRig rig({.config = {{"weight_sync.probe", "false"}}});
  rig.SetPairs(2);
  rig.SetFault("rollout", 1, "hidden state", 1, "flip");
  const int code = rig.Launch().Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(rig.FaultFired());
  REQUIRE(code == 70);
  REQUIRE(said.find("token log-probs identical between rollout and trainer") != std::string::npos);
  REQUIRE(said.find("tandemctl parity --model DIR") != std::string::npos);
  REQUIRE(said.find("The step is saved: tandemctl batch inspect ") != std::string::npos);
  REQUIRE(rig.LeftBehind() == "");
  const std::string file = rig.run_dir() + "/failed_steps/step_1/step.batch";
  const auto shown = rig.Ctl({"batch", "inspect", file, "--json"});
  INFO(shown.output);
  REQUIRE(shown.code == 0);
  const auto batch = nlohmann::json::parse(shown.output);
  REQUIRE(batch.at("samples") == 16);
  REQUIRE(batch.at("fields").contains("training_log_probs"));
  const auto& ratio = batch.at("ratio");
  REQUIRE(ratio.at("exactly_one") < ratio.at("tokens"));
  const auto& worst = ratio.at("worst");
  REQUIRE(worst.at("ratio") != 1);
  REQUIRE(worst.at("rollout_log_prob") != worst.at("trainer_log_prob"));
  const auto text = rig.Ctl({"batch", "inspect", file});
  REQUIRE(text.output.find("worst ratio ") != std::string::npos);
  REQUIRE(text.output.find("token log-probs identical") != std::string::npos);
}

}  // namespace
}  // namespace tandem::testing
