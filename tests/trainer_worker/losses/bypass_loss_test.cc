#include "trainer_worker/losses/bypass_loss.h"

#include <cmath>

#include <catch2/catch.hpp>

#include "common/comm/communicator.h"
#include "common/rollout_correction/rollout_correction.h"

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

absl::StatusOr<LossResult> Loss(const BypassOptions& bypass, const LossTokens& tokens = Tokens()) {
  return ComputePolicyLoss(tokens, {.bypass = bypass}, Sum());
}

TEST_CASE("reinforce multiplies advantage and log-prob by the cut weight", "[losses][bypass]") {
  const BypassOptions bypass{.correction = {.rollout_is = "token", .rollout_is_threshold = "3"},
                             .loss_type = "reinforce"};
  const auto result = Loss(bypass);
  REQUIRE(result->loss == Approx(1 + 2 - 3 * 2 * 0.5 - 2 * 1));
  // The weight has no gradient of its own.
  REQUIRE(result->grad_log_probs == Floats{-1, -1, 6, 2});
}

TEST_CASE("ppo_clip applies no weights beside its ratio", "[losses][bypass]") {
  const auto plain = ComputePolicyLoss(Tokens(), {}, Sum());
  const auto weighed = Loss({.correction = {.rollout_is = "token", .rollout_is_threshold = "1.5"}});
  REQUIRE(weighed->loss == plain->loss);
  REQUIRE(weighed->grad_log_probs == plain->grad_log_probs);
}

TEST_CASE("Rejected tokens have neither loss nor gradient, in both losses", "[losses][bypass]") {
  for (const std::string type : {"ppo_clip", "reinforce"}) {
    const auto tokens = Loss(
        {.correction = {.rollout_rs = "token_k2", .rollout_rs_threshold = "1"}, .loss_type = type});
    REQUIRE(tokens->tokens == 3);
    REQUIRE(tokens->grad_log_probs[2] == 0.0f);
    REQUIRE(tokens->grad_log_probs[3] != 0.0f);
    REQUIRE(tokens->ratio_max == 1.0);
    const auto whole =
        Loss({.correction = {.rollout_rs = "seq_max_k2", .rollout_rs_threshold = "1"},
              .loss_type = type});
    REQUIRE(whole->tokens == 2);
    REQUIRE(whole->grad_log_probs[3] == 0.0f);
  }
}

TEST_CASE("A sequence's correction does not depend on what it is packed with", "[losses][bypass]") {
  const BypassOptions options{.correction = {.rollout_is = "sequence",
                                             .rollout_rs = "seq_mean_k3",
                                             .rollout_rs_threshold = "0.5"},
                              .loss_type = "reinforce"};
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

TEST_CASE("A rejected token keeps its entropy bonus and its KL penalty, and its place in the mean",
          "[losses][bypass]") {
  LossTokens tokens = Tokens();
  tokens.entropy = {1, 1, 1, 1};
  tokens.ref_log_probs = {-1.0f, -2.0f, -1.5f, -1.0f};
  PolicyLossOptions options{.use_kl_loss = true, .kl_loss_coef = 0.5, .kl_loss_type = "k2"};
  options.entropy_coeff = 0.25;
  options.bypass = {.correction = {.rollout_rs = "token_k2", .rollout_rs_threshold = "1"},
                    .loss_type = "reinforce"};
  const auto result =
      ComputePolicyLoss(tokens, options, {.mode = "token-mean", .batch_tokens = 4.0});
  REQUIRE(result.ok());
  REQUIRE(result->policy_loss == Approx((1 + 2 - 2 * 1) / 4.0));
  REQUIRE(result->entropy == Approx(1));
  REQUIRE(result->kl_loss == Approx(0.5 / 4));
  REQUIRE(result->grad_entropy[2] == Approx(-0.25 / 4));
  REQUIRE(result->grad_log_probs[2] == Approx(0.5 * 1 / 4));  // the penalty's alone
}

TEST_CASE("Fresh data is neither rejected nor weighed", "[losses][bypass]") {
  LossTokens tokens = Tokens();
  tokens.old_log_probs = tokens.log_probs;
  PolicyLossOptions gpg;
  gpg.loss_mode = "gpg";
  const auto plain = ComputePolicyLoss(tokens, gpg, Sum());
  const auto corrected = Loss({.correction = {.rollout_is = "token",
                                              .rollout_rs = "token_k1",
                                              .rollout_rs_threshold = "1.001"},
                               .loss_type = "reinforce"},
                              tokens);
  REQUIRE(corrected->loss == plain->loss);
  REQUIRE(corrected->grad_log_probs == plain->grad_log_probs);
  REQUIRE(corrected->tokens == 4);
}

TEST_CASE("A micro-batch that is rejected as a whole has a loss of 0", "[losses][bypass]") {
  LossTokens tokens = Tokens();
  for (float& old : tokens.old_log_probs) old -= 9;
  const auto result = ComputePolicyLoss(
      tokens,
      {.bypass =
           BypassOptions{.correction = {.rollout_rs = "token_k2", .rollout_rs_threshold = "1"}}},
      {.mode = "token-mean", .batch_tokens = 9.0});
  REQUIRE(result.ok());
  REQUIRE(result->loss == 0);
  REQUIRE(result->tokens == 0);
  REQUIRE(result->grad_log_probs == Floats{0, 0, 0, 0});
}

TEST_CASE("Metrics are of all samples in order of id, those without tokens, too",
          "[losses][bypass]") {
  const RolloutCorrectionOptions options{
      .rollout_is = "sequence", .rollout_rs = "token_k1", .rollout_rs_threshold = "1.2"};
  const Floats policy = {-1.0f, -2.5f, -0.25f}, rollout = {-1.25f, -2.0f, -0.375f};
  // Sample 9 has two tokens, 4 one, 7 none.
  auto correction = RolloutCorrection::Create(options);
  const std::span<const float> of_policy(policy), of_rollout(rollout);
  REQUIRE(
      correction->Observe({.policy = of_policy.subspan(2), .rollout = of_rollout.subspan(2)}).ok());
  REQUIRE(correction->Observe({}).ok());
  REQUIRE(
      correction->Observe({.policy = of_policy.subspan(0, 2), .rollout = of_rollout.subspan(0, 2)})
          .ok());
  BypassMetrics metrics;
  SoloCommunicator solo;
  REQUIRE(metrics.Reduce(options, solo)->empty());
  metrics.AddToken(9, policy[0], rollout[0]);
  metrics.AddToken(4, policy[2], rollout[2]);
  metrics.AddToken(9, policy[1], rollout[1]);
  for (const uint64_t id : {9, 7, 4}) metrics.AddSample(id);
  const auto reduced = metrics.Reduce(options, solo);
  REQUIRE(*reduced == *correction->Metrics());
  // An empty response counts as perplexity 1.
  REQUIRE(reduced->at("rollout_corr/training_ppl") ==
          Approx((std::exp(1.75) + 1 + std::exp(0.25)) / 3));
  // The next mini-batch begins with nothing.
  REQUIRE(metrics.Reduce(options, solo)->empty());
}

TEST_CASE("A band that holds no ratio of a mini-batch is refused by key", "[losses][bypass]") {
  BypassMetrics metrics;
  metrics.AddToken(9, -1.0f, -1.5f);
  SoloCommunicator solo;
  const auto reduced = metrics.Reduce({.rollout_is = "token", .rollout_is_threshold = "5_6"}, solo);
  REQUIRE(absl::IsInvalidArgument(reduced.status()));
  REQUIRE(reduced.status().message().find("rollout_is_threshold=5_6") == 0);
}

TEST_CASE("A number of the correction that is not finite is left out", "[losses][bypass]") {
  BypassMetrics metrics;
  SoloCommunicator solo;
  metrics.AddToken(1, -900.0f, -900.0f);  // e^900 is not a double
  const auto reduced = metrics.Reduce({}, solo);
  REQUIRE(reduced.ok());
  REQUIRE(reduced->at("rollout_corr/kl") == 0.0);
  REQUIRE_FALSE(reduced->contains("rollout_corr/training_ppl"));
  for (const auto& [name, value] : *reduced) {
    INFO(name);
    REQUIRE(std::isfinite(value));
  }
}

TEST_CASE("An unknown loss type is refused, and a correction that cannot be read",
          "[losses][bypass]") {
  const auto says = [](const BypassOptions& bypass, const std::string& text) {
    return CheckPolicyLossOptions({.bypass = bypass}).message().find(text) != std::string::npos;
  };
  REQUIRE(says({.loss_type = "gspo"}, "use ppo_clip or reinforce"));
  REQUIRE(says({.correction = {.rollout_is = "word"}}, "use token or sequence"));
}

}  // namespace
}  // namespace tandem
