// A loss that is nothing but one more file, in added/: the configuration takes its name, and it
// trains.
#include <algorithm>

#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "trainer_worker/losses/policy_loss.h"
#include "trainer_worker/losses/policy_loss_registry.h"

namespace tandem {
namespace {

TEST_CASE("a loss in a file of its own is found by the name of its file", "[losses]") {
  const std::vector<std::string> names = PolicyLossNames();
  REQUIRE(std::count(names.begin(), names.end(), "log_ratio_square") == 1);
  REQUIRE(std::count(names.begin(), names.end(), "vanilla") == 1);
  LossTokens tokens;
  tokens.log_probs = {-1.0f, -2.0f};
  tokens.old_log_probs = {-1.5f, -2.0f};
  tokens.advantages = {2.0f, -3.0f};
  PolicyLossOptions options;
  options.loss_mode = "log_ratio_square";
  options.clip_ratio_c = 4;
  const auto result = ComputePolicyLoss(tokens, options, {.mode = "token-sum"});
  REQUIRE(result.ok());
  REQUIRE(result->loss == Approx(-2 * 0.5 + 2 * 0.25));
  REQUIRE(result->grad_log_probs == std::vector<float>{-2 + 4 * 0.5f, 3});
}

TEST_CASE("the configuration takes the name of a loss that was added", "[losses]") {
  const auto load = [](const std::string& mode) {
    return LoadConfig("", {"actor.policy_loss.loss_mode=" + mode});
  };
  const auto added = load("log_ratio_square");
  INFO(added.status().ToString());
  REQUIRE(added.ok());
  REQUIRE(added->config.actor().policy_loss().loss_mode() == "log_ratio_square");
  // It reads clip_ratio_c: nobody says that this has no effect.
  const auto reads =
      LoadConfig("", {"actor.policy_loss.loss_mode=log_ratio_square", "actor.clip_ratio_c=4"});
  REQUIRE(reads.ok());
  REQUIRE(reads->notices == std::vector<std::string>());
  const auto unknown = load("log_ratio_cube");
  REQUIRE(unknown.status().message().find("log_ratio_square") != std::string::npos);
}

}  // namespace
}  // namespace tandem
