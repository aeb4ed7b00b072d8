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
  REQUIRE(correction->Metrics().status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE_FALSE(correction->Observe({.policy = one, .rollout = two}).ok());
  REQUIRE_FALSE(correction->Observe({.policy = two, .rollout = two, .mask = none}).ok());
}

// verl 0.9.1, compute_rollout_correction_and_rejection_mask, for log-probs {-1, -2}, {-1, -1} of
// the policy and {-1.5, -2}, {-2, -1} of the rollout, of which the mask selects the second row.
TEST_CASE("A row that the mask leaves out has weight and mask 0, and counts as in verl",
          "[rollout_correction]") {
  const Floats policy[] = {{-1.0f, -2.0f}, {-1.0f, -1.0f}};
  const Floats rollout[] = {{-1.5f, -2.0f}, {-2.0f, -1.0f}};
  const Floats none{0.0f, 0.0f}, both{1.0f, 1.0f};
  const LogProbRow rows[] = {{.policy = policy[0], .rollout = rollout[0], .mask = none},
                             {.policy = policy[1], .rollout = rollout[1], .mask = both}};
  auto correction = *RolloutCorrection::Create({.rollout_is = "token",
                                                .rollout_is_threshold = "0.5_2.0",
                                                .rollout_rs = "token_k1,seq_mean_k3",
                                                .rollout_rs_threshold = "0.5_2.0,0.1"});
  for (const LogProbRow& row : rows) REQUIRE(correction.Observe(row).ok());
  REQUIRE(correction.Weights(rows[0]) == none);
  REQUIRE(correction.Weights(rows[1]) == Floats{0.0f, 1.0f});
  REQUIRE(correction.Mask(rows[0]) == none);
  REQUIRE(correction.Mask(rows[1]) == none);
  const auto metrics = *correction.Metrics();
  const std::map<std::string, double> verl = {{"rollout_is_mean", 0.5},
                                              {"rollout_is_eff_sample_size", 0.5},
                                              {"rollout_is_oob_ratio", 0.5},
                                              {"rollout_is_seq_mean", 0.25},
                                              {"rollout_is_seq_std", 0.3535533845424652},
                                              {"rollout_is_seq_fraction_low", 0.5},
                                              {"rollout_rs_token_k1_std", 0.3465735912322998},
                                              {"rollout_rs_token_k1_seq_masked_fraction", 1.0},
                                              {"rollout_rs_seq_mean_k3_mean", 0.35914087295532227},
                                              {"rollout_rs_seq_mean_k3_masked_fraction", 1.0},
                                              {"rollout_rs_masked_fraction", 1.0},
                                              {"rollout_rs_seq_masked_fraction", 0.5},
                                              {"training_ppl", 1.8591408729553223},
                                              {"rollout_ppl", 2.740844488143921},
                                              {"log_ppl_diff_min", -0.5},
                                              {"chi2_token", 3.1945276260375977}};
  for (const auto& [name, value] : verl) {
    INFO(name);
    REQUIRE(metrics.at("rollout_corr/" + name) == Approx(value).epsilon(1e-5));
  }
}

// verl 0.9.1 raises ZeroDivisionError for the effective sample size, with tokens and with
// sequences.
TEST_CASE("A band that holds no ratio at all is refused by key", "[rollout_correction]") {
  const Floats policy{-1.0f, -2.0f}, rollout{-1.5f, -2.0f};
  for (const std::string level : {"token", "sequence"}) {
    auto correction =
        RolloutCorrection::Create({.rollout_is = level, .rollout_is_threshold = "5_6"});
    REQUIRE(correction->Observe({.policy = policy, .rollout = rollout}).ok());
    const absl::Status refused = correction->Metrics().status();
    REQUIRE(refused.code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(refused.message().find("rollout_is_threshold=5_6 makes every importance weight 0") ==
            0);
  }
}

}  // namespace
}  // namespace tandem
