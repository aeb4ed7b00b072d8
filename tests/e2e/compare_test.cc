// Which log-probs trainers compare with the rollout's where a step has several updates, with real
// processes.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

// Two mini-batches of 8 responses in every step.
constexpr double kSamples = 16;

RigOptions TwoMiniBatches(std::map<std::string, std::string> config = {}) {
  config.insert({{"actor.ppo_mini_batch_size", "2"}, {"rollout.ignore_eos", "true"}});
  return {.config = std::move(config)};
}

TEST_CASE("every token of a step of two mini-batches is compared, and that changes no weight") {
  const Outcome all = RunUndisturbed(TwoMiniBatches());
  RequireLearned(all, 3);
  const Outcome first = RunUndisturbed(TwoMiniBatches({{"actor.compare_all_log_probs", "false"}}));
  const Outcome recomputed = RunUndisturbed(TwoMiniBatches({{"actor.old_log_prob", "recompute"}}));
  for (int64_t step = 1; step <= 3; ++step) {
    const auto compared = [&](const Outcome& outcome) {
      return outcome.metrics.at(step).at("training/rollout_log_probs_compared").get<double>();
    };
    const double tokens = kSamples * all.metrics.at(step).at("response_length/mean").get<double>();
    REQUIRE(compared(all) == tokens);
    REQUIRE(compared(recomputed) == tokens);
    REQUIRE(compared(first) == tokens / 2);
  }
  REQUIRE(first.weights == all.weights);
  REQUIRE(recomputed.weights == all.weights);
}

// The rollout computes wrongly once it has made 100 of its 128 tokens, so that the last group alone
// is wrong. Which mini-batch that one is in differs from run to run, as groups reach a rollout in
// any order; train_loop_mini_batches_test has it in the second.
TEST_CASE("a log-prob that differs in either mini-batch ends the run before its first update") {
  ClusterRig rig(TwoMiniBatches({{"weight_sync.probe", "false"},
                                 {"rollout.max_num_seqs", "4"},
                                 {"trainer.total_training_steps", "1"}}));
  rig.SetPairs(1);
  rig.SetFault("rollout", 0, "hidden state", 100, "flip");
  const int code = rig.Launch().Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(rig.FaultFired());
  REQUIRE(code == 70);
  REQUIRE(said.find(" of 128 token log-probs identical") != std::string::npos);
  const std::string file = rig.run_dir() + "/failed_steps/step_1/step.batch";
  const auto shown = rig.Ctl({"batch", "inspect", file, "--json"});
  INFO(shown.output);
  REQUIRE(shown.code == 0);
  const auto batch = nlohmann::json::parse(shown.output);
  REQUIRE(batch.at("version") == 0);  // no update was made
  REQUIRE(batch.at("fields").contains("training_log_probs"));
  const auto& ratio = batch.at("ratio");
  REQUIRE(ratio.at("tokens") == 128);
  REQUIRE(ratio.at("exactly_one") >= 96);
  REQUIRE(ratio.at("exactly_one") < 128);
}

}  // namespace
}  // namespace tandem::testing
