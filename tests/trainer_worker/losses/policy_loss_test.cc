// Edge cases of the losses that the golden numbers do not cover.
#include "trainer_worker/losses/policy_loss.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>

#include <catch2/catch.hpp>

#include "tests/support/text.h"
#include "trainer_worker/losses/policy_loss_registry.h"

namespace tandem {
namespace {

using testing::Says;

PolicyLossOptions OptionsFor(const std::string& name) {
  PolicyLossOptions options;
  options.loss_mode = name;
  options.dro_beta = 0.5;
  return options;
}

// Two sequences of three and two tokens, on policy.
LossTokens OnPolicy(const PolicyLossOptions& options) {
  LossTokens tokens;
  tokens.log_probs = {-0.5f, -1.25f, -0.75f, -2.0f, -0.125f};
  tokens.old_log_probs = tokens.log_probs;
  tokens.advantages = {1.5f, 1.5f, 1.5f, -0.75f, -0.75f};
  tokens.rows = {0, 0, 0, 1, 1};
  tokens.num_rows = 2;
  if (SelectionOf(options) != Selection::kNone) tokens.selected.assign(5, 0);
  return tokens;
}

TEST_CASE("on policy every loss has the plain policy gradient, and nothing is clipped",
          "[losses]") {
  for (const std::string& name : PolicyLossNames()) {
    INFO(name);
    const PolicyLossOptions options = OptionsFor(name);
    const LossTokens tokens = OnPolicy(options);
    const auto result = ComputePolicyLoss(tokens, options, {});
    REQUIRE(result.ok());
    // sapo's and geo_mean's mean goes over sequences of two and three tokens.
    const bool by_row = name == "sapo" || name == "geo_mean";
    for (size_t i = 0; i < 5; ++i) {
      const double weight = !by_row ? 1.0 / 5 : i < 3 ? 1.0 / 6 : 1.0 / 4;
      REQUIRE(result->grad_log_probs[i] == Approx(-tokens.advantages[i] * weight).epsilon(1e-5));
    }
    REQUIRE(result->clipped_sum == 0);
    REQUIRE(result->clipped_dual_sum == 0);
    REQUIRE(result->approx_kl_sum == 0);
    REQUIRE(result->ratio_min == 1.0);
    REQUIRE(result->ratio_max == 1.0);
    REQUIRE(result->ratio_sum == 5.0);
  }
}

TEST_CASE("a token outside the mask has no gradient and changes no other", "[losses]") {
  for (const std::string& name : PolicyLossNames()) {
    INFO(name);
    const PolicyLossOptions options = OptionsFor(name);
    LossTokens tokens = OnPolicy(options);
    tokens.old_log_probs = {-0.4f, -1.5f, -0.75f, -1.9f, -0.25f};
    tokens.mask = {1, 0, 1, 1, 1};
    const auto before = ComputePolicyLoss(tokens, options, {});
    tokens.log_probs[1] = -9;
    tokens.old_log_probs[1] = -3;
    tokens.advantages[1] = 100;
    const auto after = ComputePolicyLoss(tokens, options, {});
    REQUIRE(before.ok());
    REQUIRE(after.ok());
    REQUIRE(after->grad_log_probs[1] == 0);
    REQUIRE(after->grad_log_probs == before->grad_log_probs);
    REQUIRE(after->loss == before->loss);
    REQUIRE(after->tokens == 4);
    REQUIRE(after->approx_kl_sum == before->approx_kl_sum);
    REQUIRE(after->ratio_min == before->ratio_min);
    REQUIRE(after->ratio_max == Approx(std::exp(0.125)));
  }
}

TEST_CASE("importance weights scale the policy term alone", "[losses]") {
  PolicyLossOptions options;
  options.entropy_coeff = 0.5;
  LossTokens tokens = OnPolicy(options);
  tokens.entropy = {1, 2, 3, 4, 5};
  tokens.is_weights = {0, 2, 1, 1, 0.5f};
  const auto result = ComputePolicyLoss(tokens, options, {.mode = "token-sum"});
  REQUIRE(result.ok());
  REQUIRE(result->grad_log_probs == std::vector<float>{0, -3, -1.5f, 0.75f, 0.375f});
  REQUIRE(result->grad_entropy == std::vector<float>(5, -0.5f));
  REQUIRE(result->entropy == 15);
  // geo_mean takes their geometric mean per sequence.
  options = OptionsFor("geo_mean");
  tokens.is_weights = {0.5f, 2, 1, 4, 0.25f};
  const auto weighted = ComputePolicyLoss(tokens, options, {});
  tokens.is_weights.clear();
  const auto plain = ComputePolicyLoss(tokens, options, {});
  REQUIRE(weighted->policy_loss == Approx(plain->policy_loss));
}

TEST_CASE("clipping is one-sided: it stops tokens that move on, not those that come back",
          "[losses]") {
  LossTokens tokens;
  tokens.old_log_probs = {-1, -1, -1, -1};
  tokens.log_probs = {-0.5f, -0.5f, -1.5f, -1.5f};
  tokens.advantages = {1, -1, 1, -1};
  const auto vanilla = ComputePolicyLoss(tokens, {}, {.mode = "token-sum"});
  REQUIRE(vanilla->grad_log_probs[0] == 0);
  REQUIRE(vanilla->grad_log_probs[1] == Approx(std::exp(0.5)));
  REQUIRE(vanilla->grad_log_probs[2] == Approx(-std::exp(-0.5)));
  REQUIRE(vanilla->grad_log_probs[3] == 0);
  REQUIRE(vanilla->clipped_sum == 2);
  for (const char* name : {"dppo_tv", "dppo_kl"}) {
    PolicyLossOptions options = OptionsFor(name);
    options.clip_ratio_low = options.clip_ratio_high = 0.01;
    const auto bounded = ComputePolicyLoss(tokens, options, {.mode = "token-sum"});
    INFO(name);
    REQUIRE(bounded->grad_log_probs[0] == 0);
    REQUIRE(bounded->grad_log_probs[1] == Approx(std::exp(0.5)));
    REQUIRE(bounded->grad_log_probs[2] == Approx(-std::exp(-0.5)));
    REQUIRE(bounded->grad_log_probs[3] == 0);
    REQUIRE(bounded->clipped_sum == 2);
  }
  // cispo keeps every token's gradient, with a bounded weight.
  const auto cispo = ComputePolicyLoss(tokens, OptionsFor("cispo"), {.mode = "token-sum"});
  REQUIRE(cispo->grad_log_probs[0] == Approx(-1.2));
  REQUIRE(cispo->grad_log_probs[3] == Approx(0.8));
  REQUIRE(cispo->clipped_sum == 4);
}

TEST_CASE("a token without advantage has the bound of those that become less likely", "[losses]") {
  LossTokens tokens;
  tokens.old_log_probs = {-1, -1};
  tokens.log_probs = {-0.5f, -1.5f};
  tokens.advantages = {0, 0};
  for (const char* name : {"dppo_tv", "dppo_kl"}) {
    PolicyLossOptions options = OptionsFor(name);
    options.clip_ratio_low = options.clip_ratio_high = 0.01;
    const auto result = ComputePolicyLoss(tokens, options, {.mode = "token-sum"});
    INFO(name);
    REQUIRE(result.ok());
    REQUIRE(result->clipped_sum == 1);  // the second one
    tokens.mask = {1, 0};
    REQUIRE(ComputePolicyLoss(tokens, options, {.mode = "token-sum"})->clipped_sum == 0);
    tokens.mask.clear();
  }
}

TEST_CASE("dppo_tv's bounds belong to its trust region", "[losses]") {
  // exp(-200) is 0 in float, so that the changes of the probability are exactly -1 and 1.
  LossTokens tokens;
  tokens.old_log_probs = {0, -200};
  tokens.log_probs = {-200, 0};
  tokens.advantages = {-1, 1};
  PolicyLossOptions options = OptionsFor("dppo_tv");
  options.clip_ratio_low = options.clip_ratio_high = 1;
  REQUIRE(ComputePolicyLoss(tokens, options, {.mode = "token-sum"})->clipped_sum == 0);
  options.clip_ratio_low = options.clip_ratio_high = 0.999;
  REQUIRE(ComputePolicyLoss(tokens, options, {.mode = "token-sum"})->clipped_sum == 2);
}

TEST_CASE("what a loss needs of every token is refused if it is missing or of another length",
          "[losses]") {
  const PolicyLossOptions options;
  auto refused = [&options](std::vector<float> LossTokens::*values, std::vector<float> wrong) {
    LossTokens tokens = OnPolicy(options);
    tokens.*values = std::move(wrong);
    const auto result = ComputePolicyLoss(tokens, options, {});
    return !result.ok() && Says(result.status(), "wrong length");
  };
  for (auto values : {&LossTokens::old_log_probs, &LossTokens::advantages}) {
    REQUIRE(refused(values, {}));
    REQUIRE(refused(values, {1, 1, 1}));
  }
  for (auto values : {&LossTokens::is_weights, &LossTokens::mask}) {
    REQUIRE_FALSE(refused(values, {}));
    REQUIRE(refused(values, {1, 1, 1}));
  }
}

TEST_CASE("geo_mean divides by the samples of the mini-batch, not by those at hand", "[losses]") {
  LossTokens tokens;
  tokens.old_log_probs = {-1.0f, -1.0f, -2.0f, -2.0f};
  // Log-ratios 0.1 and 0.5, cut to 0.2; then -0.4, cut to -0.2, and one that does not count.
  tokens.log_probs = {-0.9f, -0.5f, -2.4f, -1.0f};
  tokens.advantages = {2.0f, 2.0f, -1.0f, -1.0f};
  tokens.mask = {1, 1, 1, 0};
  tokens.rows = {0, 0, 1, 1};
  tokens.num_rows = 2;
  const PolicyLossOptions options = OptionsFor("geo_mean");
  for (const char* mode : {"token-mean", "token-sum", "seq-mean-token-sum"}) {
    const auto result = ComputePolicyLoss(
        tokens, options, {.mode = mode, .batch_tokens = 100.0, .batch_samples = 8.0});
    REQUIRE(result.ok());
    // (-2 exp(0.15) + exp(-0.2)) / 8
    REQUIRE(result->policy_loss == Approx(-0.1881172166).epsilon(1e-6));
    // By the first token: -2 exp(0.15) / 2 / 8; the others are cut.
    REQUIRE(result->grad_log_probs[0] == Approx(-0.1452292803).epsilon(1e-6));
    REQUIRE(result->grad_log_probs[1] == 0.0f);
    REQUIRE(result->grad_log_probs[2] == 0.0f);
  }
  // Without the mini-batch's: those at hand.
  const auto alone = ComputePolicyLoss(tokens, options, {.mode = "token-mean"});
  REQUIRE(alone->policy_loss == Approx(4 * -0.1881172166).epsilon(1e-6));
}

TEST_CASE("selected tokens alone lose their update or are penalised", "[losses]") {
  LossTokens tokens;
  tokens.old_log_probs = {-1, -1, -1};
  tokens.log_probs = {-0.9f, -1.125f, -0.9f};
  tokens.advantages = {1, 1, 1};
  tokens.selected = {1, 1, 0};
  const auto clipped = ComputePolicyLoss(tokens, OptionsFor("clip_cov"), {.mode = "token-sum"});
  REQUIRE(clipped->grad_log_probs[0] == 0);
  REQUIRE(clipped->grad_log_probs[2] == Approx(-std::exp(0.1)).epsilon(1e-5));
  REQUIRE(clipped->clipped_sum == 2);
  PolicyLossOptions options = OptionsFor("kl_cov");
  options.ppo_kl_coef = 0.25;
  const auto penalised = ComputePolicyLoss(tokens, options, {.mode = "token-sum"});
  REQUIRE(penalised->grad_log_probs[0] == Approx(-std::exp(0.1) + 0.25).epsilon(1e-5));
  REQUIRE(penalised->grad_log_probs[1] == Approx(-std::exp(-0.125) - 0.25).epsilon(1e-5));
  REQUIRE(penalised->grad_log_probs[2] == Approx(-std::exp(0.1)).epsilon(1e-5));
  tokens.selected.clear();
  const auto without = ComputePolicyLoss(tokens, options, {});
  REQUIRE(without.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Says(without.status(), "kl_cov needs its selection"));
}

TEST_CASE("the losses are the files of their folder, by name", "[losses]") {
  std::vector<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator("trainer_worker/losses/policy")) {
    if (file.path().extension() == ".cc") files.push_back(file.path().stem());
  }
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() >= 11);
  REQUIRE(PolicyLossNames() == files);
}

TEST_CASE("options that a loss cannot use are refused by key", "[losses]") {
  const auto refused = [](const PolicyLossOptions& options, const std::string& key) {
    const absl::Status status = CheckPolicyLossOptions(options);
    INFO(key << ": " << status.ToString());
    return status.code() == absl::StatusCode::kInvalidArgument && Says(status, key);
  };
  REQUIRE(refused({.loss_mode = "ppo"}, "use one of cispo, clip_cov"));
  REQUIRE(refused({.clip_ratio_c = 1}, "actor.clip_ratio_c"));
  REQUIRE(refused({.loss_mode = "dro"}, "actor.policy_loss.dro_beta"));
  REQUIRE(refused({.loss_mode = "sapo", .tau_neg = 0}, "actor.tau_neg"));
  REQUIRE(refused({.loss_mode = "clip_cov", .clip_cov_ratio = 0}, "clip_cov_ratio"));
  REQUIRE(refused({.loss_mode = "clip_cov", .clip_cov_lb = 5}, "clip_cov_ub"));
  REQUIRE(refused({.loss_mode = "kl_cov", .kl_cov_ratio = 0}, "kl_cov_ratio"));
  REQUIRE(refused({.loss_mode = "kl_cov", .kl_cov_ratio = 1.5}, "kl_cov_ratio"));
  REQUIRE(refused({.use_kl_loss = true, .kl_loss_type = "full"}, "\"full\""));
  for (const std::string& name : PolicyLossNames()) {
    REQUIRE(CheckPolicyLossOptions(OptionsFor(name)).ok());
  }
}

}  // namespace
}  // namespace tandem
