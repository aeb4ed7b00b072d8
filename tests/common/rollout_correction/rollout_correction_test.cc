#include "common/rollout_correction/rollout_correction.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Floats = std::vector<float>;

std::string OptionsRefusal(const RolloutCorrectionOptions& options) {
  const auto correction = RolloutCorrection::Create(options);
  REQUIRE(correction.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(correction.status().message());
}

TEST_CASE("Options that cannot be read are refused by key", "[rollout_correction]") {
  REQUIRE(OptionsRefusal({.rollout_is = "geometric"}).find("use token or sequence") !=
          std::string::npos);
  REQUIRE(OptionsRefusal({.rollout_is = "token", .rollout_is_threshold = "3_2"})
              .find("rollout_is_threshold: ") == 0);
  REQUIRE(OptionsRefusal({.rollout_rs = "token_k1"}).find("needs rollout_rs_threshold") !=
          std::string::npos);
  REQUIRE(
      OptionsRefusal({.rollout_rs = "token_k9", .rollout_rs_threshold = "1"}).find("token_k9") !=
      std::string::npos);
}

TEST_CASE("Without weights and rejection there are metrics alone", "[rollout_correction]") {
  auto correction = RolloutCorrection::Create({});
  const Floats policy{-1.0f, -2.0f}, rollout{-1.5f, -2.0f};
  const LogProbRow row{.policy = policy, .rollout = rollout};
  REQUIRE(correction->Observe(row).ok());
  REQUIRE(correction->Weights(row).empty());
  REQUIRE(correction->Mask(row).empty());
  const auto metrics = *correction->Metrics();
  REQUIRE(metrics.size() == 13);
  // The rollout is less sure of its tokens than the trained policy.
  REQUIRE(metrics.at("rollout_corr/kl") == Approx(-0.25));
  REQUIRE(metrics.at("rollout_corr/log_ppl_diff") == Approx(-0.25));
  REQUIRE(metrics.at("rollout_corr/training_log_ppl") == Approx(1.5));
  REQUIRE(metrics.at("rollout_corr/rollout_log_ppl") == Approx(1.75));
}

TEST_CASE("Identical log-probs: no divergence in any metric", "[rollout_correction]") {
  auto correction = RolloutCorrection::Create({.rollout_is = "sequence",
                                               .rollout_is_batch_normalize = true,
                                               .rollout_rs = "token_k1,seq_mean_k3",
                                               .rollout_rs_threshold = "1.0001,1e-9"});
  const Floats one{-0.3f, -7.0f, -2.25f}, two{-0.1f};
  for (const Floats& values : {one, two}) {
    REQUIRE(correction->Observe({.policy = values, .rollout = values}).ok());
  }
  REQUIRE(correction->Weights({.policy = one, .rollout = one}) == Floats{1, 1, 1});
  REQUIRE(correction->Mask({.policy = one, .rollout = one}) == Floats{1, 1, 1});
  const auto metrics = *correction->Metrics();
  for (const std::string name : {"kl", "k3_kl", "chi2_token", "chi2_seq", "log_ppl_diff",
                                 "log_ppl_abs_diff", "rollout_is_std", "rollout_is_seq_std",
                                 "rollout_rs_masked_fraction", "rollout_rs_token_k1_std"}) {
    INFO(name);
    REQUIRE(metrics.at("rollout_corr/" + name) == 0.0);
  }
  REQUIRE(metrics.at("rollout_corr/ppl_ratio") == 1.0);
  REQUIRE(metrics.at("rollout_corr/rollout_is_eff_sample_size") == Approx(1));
}

TEST_CASE("A batch without a token is refused, as are arrays that do not fit",
          "[rollout_correction]") {
  auto correction = RolloutCorrection::Create({.rollout_is = "token"});
  const Floats one{-1.0f}, two{-1.0f, -1.0f}, none{0.0f};
  REQUIRE(correction->Observe({.policy = {}, .rollout = {}}).ok());
  REQUIRE(correction->Observe({.policy = one, .rollout = one, .mask = none}).ok());
  REQUIRE(correction->Metrics().status().message().find("empty or masked") != std::string::npos);
  REQUIRE_FALSE(correction->Observe({.policy = one, .rollout = two}).ok());
  REQUIRE_FALSE(correction->Observe({.policy = two, .rollout = two, .mask = none}).ok());
}

}  // namespace
}  // namespace tandem
