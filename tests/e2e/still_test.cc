// With a learning rate of 0 a step must not change any weight.
#include <set>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

constexpr int kStillSteps = 20;

// The digests in the lines about published versions.
std::vector<std::string> Digests(const std::string& log) {
  std::vector<std::string> digests;
  const std::string mark = "weights published, digest ";
  for (size_t at = log.find(mark); at != std::string::npos; at = log.find(mark, at + 1)) {
    digests.push_back(log.substr(at + mark.size(), 32));
  }
  return digests;
}

TEST_CASE("twenty steps at learning rate 0 leave weights, ratio and KL as they are") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "20"},
                             {"trainer.save_freq", "-1"},
                             {"actor.optim.lr", "0"},
                             {"actor.use_kl_loss", "true"},
                             {"actor.kl_loss_type", "low_var_kl"}}});
  const int code = rig.Launch().Wait();
  const std::string log = rig.Log("launcher");
  INFO(log);
  REQUIRE(code == 0);
  const auto metrics = rig.Metrics();
  REQUIRE(metrics.size() == kStillSteps);
  double gradients = 0;
  for (const auto& [step, data] : metrics) {
    INFO("step " << step);
    REQUIRE(data.at("actor/lr") == 0.0);
    // Every token has the log-prob it was sampled with, so every ratio is exactly 1; and the same
    // under the reference, where every token's low_var_kl is at least 0.
    REQUIRE(data.at("training/rollout_log_probs_identical") == 1.0);
    REQUIRE(data.at("actor/ppo_kl") == 0.0);
    REQUIRE(data.at("actor/pg_clipfrac") == 0.0);
    REQUIRE(data.at("actor/kl_loss") == 0.0);
    REQUIRE(data.at("weights/changed_share") == 0.0);
    gradients += data.at("actor/grad_norm").get<double>();
  }
  REQUIRE(gradients > 0.0);  // there was something to step on
  const std::vector<std::string> digests = Digests(rig.Log("controller"));
  REQUIRE(digests.size() == kStillSteps + 1);  // the first sync, and one after each step
  REQUIRE(std::set<std::string>(digests.begin(), digests.end()).size() == 1);
  REQUIRE(digests.front().size() == 32);
}

}  // namespace
}  // namespace tandem::testing
