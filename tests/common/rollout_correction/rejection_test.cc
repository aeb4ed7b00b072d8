#include "common/rollout_correction/rejection.h"

#include <cmath>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Floats = std::vector<float>;

float LogOfRatio(double x) { return static_cast<float>(std::log(x)); }

Floats MaskOf(const std::string& names,
              const std::string& thresholds,
              const Floats& log_ratios,
              const Floats& mask = {}) {
  const Floats rollout(log_ratios.size(), 0.0f);
  const Rejection rejection(*ParseRejection(names, thresholds));
  return rejection.Mask({.policy = log_ratios, .rollout = rollout, .mask = mask});
}

TEST_CASE("token_k1 keeps minus the log ratio inside the logarithms of its bounds",
          "[rollout_correction]") {
  // k1 is log(rollout / policy): the bounds are on the ratio turned over.
  REQUIRE(MaskOf("token_k1", "0.5_4",
                 {LogOfRatio(0.3), LogOfRatio(0.2), LogOfRatio(1.9), LogOfRatio(2.1)}) ==
          Floats{1, 0, 1, 0});
}

TEST_CASE("token_k2 and token_k3 keep small divergences in either direction",
          "[rollout_correction]") {
  REQUIRE(MaskOf("token_k2", "0.5", {0.9f, -0.9f, 1.1f, -1.1f}) == Floats{1, 1, 0, 0});
  // e^d - 1 - d is 0.72 at 1 and 0.37 at -1.
  REQUIRE(MaskOf("token_k3", "0.5", {1.0f, -1.0f, 0.0f}) == Floats{0, 1, 1});
}

TEST_CASE("Sequence criteria keep or reject whole responses", "[rollout_correction]") {
  const Floats ratios{0.2f, 0.2f, 0.2f, 1.0f};  // k2: 0.02 three times, 0.5
  REQUIRE(MaskOf("seq_sum_k2", "0.57", ratios) == Floats{1, 1, 1, 1});
  REQUIRE(MaskOf("seq_sum_k2", "0.55", ratios) == Floats{0, 0, 0, 0});
  REQUIRE(MaskOf("seq_mean_k2", "0.15", ratios) == Floats{1, 1, 1, 1});
  REQUIRE(MaskOf("seq_mean_k2", "0.13", ratios) == Floats{0, 0, 0, 0});
  REQUIRE(MaskOf("seq_max_k2", "0.51", ratios) == Floats{1, 1, 1, 1});
  REQUIRE(MaskOf("seq_max_k2", "0.4", ratios) == Floats{0, 0, 0, 0});
  // Sums of k1 cancel, of k3 they do not.
  REQUIRE(MaskOf("seq_sum_k1", "1.1", {1.0f, -1.0f}) == Floats{1, 1});
  REQUIRE(MaskOf("seq_sum_k3", "1", {1.0f, -1.0f}) == Floats{0, 0});
}

TEST_CASE("Tokens outside the mask neither count nor come back", "[rollout_correction]") {
  const Floats ratios{0.1f, 5.0f, 0.1f}, mask{1, 0, 1};
  REQUIRE(MaskOf("seq_max_k2", "0.1", ratios, mask) == mask);
  REQUIRE(MaskOf("token_k2", "0.1", ratios, mask) == mask);
  REQUIRE(MaskOf("seq_mean_k2", "0.006", ratios, mask) == mask);
}

TEST_CASE("All criteria must keep a token", "[rollout_correction]") {
  const Floats ratios{LogOfRatio(3), 0.0f, -0.5f};
  REQUIRE(MaskOf("token_k1", "0.5_2", ratios) == Floats{0, 1, 1});
  REQUIRE(MaskOf("token_k3", "0.1", ratios) == Floats{0, 1, 0});
  REQUIRE(MaskOf("token_k1,token_k3", "0.5_2,0.1", ratios) == Floats{0, 1, 0});
}

TEST_CASE("A log-prob that is not a number is rejected", "[rollout_correction]") {
  REQUIRE(MaskOf("token_k1", "0.5_2", {NAN, 0.0f}) == Floats{0, 1});
  REQUIRE(MaskOf("seq_sum_k2", "1", {NAN, 0.0f}) == Floats{0, 0});
}

TEST_CASE("Identical log-probs are always kept, also by the narrowest bounds",
          "[rollout_correction]") {
  for (const std::string name : {"token_k1", "seq_sum_k1", "seq_mean_k1"}) {
    REQUIRE(MaskOf(name, "1_1", {0.0f, 0.0f}) == Floats{1, 1});
  }
  REQUIRE(MaskOf("seq_max_k3", "1e-30", {0.0f}) == Floats{1});
}

TEST_CASE("Fractions count rejected tokens, and responses that lost some", "[rollout_correction]") {
  Rejection rejection(*ParseRejection("token_k2,seq_max_k2", "0.02,2"));
  const Floats rollout(4, 0.0f), near{0.1f, 0.1f, 0.1f, 0.3f}, far{3.0f, 0.0f, 0.0f, 0.0f};
  const Floats none{0, 0, 0, 0};
  rejection.Observe({.policy = near, .rollout = rollout});
  rejection.Observe({.policy = far, .rollout = rollout});
  rejection.Observe({.policy = near, .rollout = rollout, .mask = none});
  rejection.Observe({.policy = rollout, .rollout = rollout});
  std::map<std::string, double> metrics;
  rejection.AddMetrics(metrics);
  REQUIRE(metrics.at("rollout_rs_token_k2_masked_fraction") == Approx(2.0 / 12));
  REQUIRE(metrics.at("rollout_rs_token_k2_seq_masked_fraction") == Approx(2.0 / 3));
  REQUIRE(metrics.at("rollout_rs_seq_max_k2_masked_fraction") == Approx(4.0 / 12));
  REQUIRE(metrics.at("rollout_rs_masked_fraction") == Approx(5.0 / 12));
  // The response without tokens counts here.
  REQUIRE(metrics.at("rollout_rs_seq_masked_fraction") == 0.5);
}

}  // namespace
}  // namespace tandem
