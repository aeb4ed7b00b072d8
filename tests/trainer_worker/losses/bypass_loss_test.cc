#include "trainer_worker/losses/bypass_loss.h"

#include <cmath>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Floats = std::vector<float>;

// Two sequences, the second one's first token far from the rollout.
LossTokens Tokens() {
  LossTokens tokens;
  tokens.log_probs = {-1.0f, -2.0f, -0.5f, -1.0f};
  tokens.old_log_probs = {-1.0f, -2.0f, -3.0f, -1.0f};
  tokens.advantages = {1.0f, 1.0f, -2.0f, -2.0f};
  tokens.rows = {0, 0, 1, 1};
  tokens.num_rows = 2;
  return tokens;
}

LossScale Sum() { return {.mode = "token-sum"}; }

TEST_CASE("reinforce multiplies advantage and log-prob by the cut weight", "[losses][bypass]") {
  const BypassOptions bypass{.correction = {.rollout_is = "token", .rollout_is_threshold = "3"},
                             .loss_type = "reinforce"};
  const auto result = ComputeBypassLoss(Tokens(), bypass, {}, Sum());
  REQUIRE(result->loss == Approx(1 + 2 - 3 * 2 * 0.5 - 2 * 1));
  // The weight has no gradient of its own.
  REQUIRE(result->grad_log_probs == Floats{-1, -1, 6, 2});
}

TEST_CASE("ppo_clip applies no weights beside its ratio", "[losses][bypass]") {
  const auto plain = ComputePolicyLoss(Tokens(), {}, Sum());
  const auto weighed = ComputeBypassLoss(
      Tokens(), {.correction = {.rollout_is = "token", .rollout_is_threshold = "1.5"}}, {}, Sum());
  REQUIRE(weighed->loss == plain->loss);
  REQUIRE(weighed->grad_log_probs == plain->grad_log_probs);
}

TEST_CASE("Rejected tokens have neither loss nor gradient, in both losses", "[losses][bypass]") {
  for (const std::string type : {"ppo_clip", "reinforce"}) {
    const auto tokens = ComputeBypassLoss(
        Tokens(),
        {.correction = {.rollout_rs = "token_k2", .rollout_rs_threshold = "1"}, .loss_type = type},
        {}, Sum());
    REQUIRE(tokens->tokens == 3);
    REQUIRE(tokens->grad_log_probs[2] == 0.0f);
    REQUIRE(tokens->grad_log_probs[3] != 0.0f);
    const auto whole =
        ComputeBypassLoss(Tokens(),
                          {.correction = {.rollout_rs = "seq_max_k2", .rollout_rs_threshold = "1"},
                           .loss_type = type},
                          {}, Sum());
    REQUIRE(whole->tokens == 2);
    REQUIRE(whole->grad_log_probs[3] == 0.0f);
  }
}

TEST_CASE("A sequence's correction does not depend on what it is packed with", "[losses][bypass]") {
  const RolloutCorrectionOptions options{
      .rollout_is = "sequence", .rollout_rs = "seq_mean_k3", .rollout_rs_threshold = "0.5"};
  const auto together = CorrectInBypass(Tokens(), options);
  LossTokens alone;
  alone.log_probs = {-0.5f, -1.0f};
  alone.old_log_probs = {-3.0f, -1.0f};
  const auto apart = CorrectInBypass(alone, options);
  REQUIRE(apart->weights == Floats{together->weights[2], together->weights[3]});
  REQUIRE(apart->mask == Floats{together->mask[2], together->mask[3]});
  REQUIRE(together->mask == Floats{1, 1, 0, 0});
  REQUIRE(together->weights == Floats{1, 1, 2, 2});
}

TEST_CASE("An unknown loss type is refused", "[losses][bypass]") {
  const auto result = ComputeBypassLoss(Tokens(), {.loss_type = "gspo"}, {}, Sum());
  REQUIRE(result.status().message().find("use ppo_clip or reinforce") != std::string::npos);
}

}  // namespace
}  // namespace tandem
