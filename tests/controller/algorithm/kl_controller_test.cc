#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

#include "controller/algorithm/kl_penalty.h"

namespace tandem {
namespace {

constexpr KlControl kAdaptive{.adaptive = true, .target = 0.1, .horizon = 100};

}  // namespace

TEST_CASE("A fixed KL coefficient stays as it is", "[kl]") {
  REQUIRE(NextKlCoef({}, 0.5, 7.0, 1000) == 0.5);
}

TEST_CASE("An adaptive KL coefficient follows the KL by at most a fifth per horizon", "[kl]") {
  // On target nothing changes; a tenth above: 10 % of 10 samples in 100.
  REQUIRE(NextKlCoef(kAdaptive, 0.5, 0.1, 10) == 0.5);
  REQUIRE(NextKlCoef(kAdaptive, 0.5, 0.11, 10) == Approx(0.5 * 1.01).epsilon(1e-12));
  REQUIRE(NextKlCoef(kAdaptive, 0.5, 0.09, 10) == Approx(0.5 * 0.99).epsilon(1e-12));
  // Far away, and negative as k1 may be: clipped.
  REQUIRE(NextKlCoef(kAdaptive, 0.5, 90.0, 10) == Approx(0.5 * 1.02).epsilon(1e-12));
  REQUIRE(NextKlCoef(kAdaptive, 0.5, -3.0, 10) == Approx(0.5 * 0.98).epsilon(1e-12));
  // It works on the coefficient that is, not on the first.
  REQUIRE(NextKlCoef(kAdaptive, 2.0, 90.0, 10) == Approx(2.04).epsilon(1e-12));
}

// verl 0.9.1, AdaptiveKLController and FixedKLController, coefficient 0.2, horizon 100, 10 steps.
TEST_CASE("Negative targets and coefficients, and a large batch, give what verl gives", "[kl]") {
  struct Update {
    double target, coef, kl;
    int64_t samples;
    double verl;
  };
  for (const Update& c : {Update{-0.1, 0.2, 0.3, 10, 0.196}, Update{-0.1, 0.2, -0.1, 10, 0.2},
                          Update{-0.1, 0.2, -0.3, 10, 0.204}, Update{-0.1, 0.2, -0.11, 10, 0.202},
                          Update{0.1, 0.2, -0.3, 10, 0.196}, Update{0.1, -0.2, 0.3, 10, -0.204},
                          Update{0.1, -0.2, 0.0, 10, -0.196}, Update{0.1, 0.0, 0.3, 10, 0.0},
                          Update{0.1, 0.2, 0.3, 1000, 0.6}, Update{0.1, 0.6, 0.3, 1000, 1.8},
                          Update{0.1, 0.2, 0.0, 1000, -0.2}}) {
    INFO(c.target << " " << c.coef << " " << c.kl);
    const KlControl control{.adaptive = true, .target = c.target, .horizon = 100};
    REQUIRE(NextKlCoef(control, c.coef, c.kl, c.samples) == Approx(c.verl).epsilon(1e-12));
  }
  for (const double coef : {-0.2, 0.0, 0.2}) {
    REQUIRE(NextKlCoef({.target = 0, .horizon = 0}, coef, 0.3, 10) == coef);
  }
}

TEST_CASE("A KL that is not finite leaves the coefficient as it is", "[kl]") {
  for (const double kl : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    REQUIRE(NextKlCoef(kAdaptive, 0.5, kl, 10) == 0.5);
  }
}

TEST_CASE("The KL of a response is the mean over the tokens that count", "[kl]") {
  const std::vector<float> policy = {-1.0f, -1.0f, -3.0f};
  const std::vector<float> reference = {-2.0f, -1.5f, -1.0f};
  const auto all = KlOfTokens(policy, reference, {}, "kl");
  REQUIRE(all.ok());
  REQUIRE(all->penalty == std::vector<float>{1.0f, 0.5f, -2.0f});
  REQUIRE(all->mean == Approx(-0.5 / 3));
  const auto masked = KlOfTokens(policy, reference, {1, 1, 0}, "kl");
  REQUIRE(masked->penalty == std::vector<float>{1.0f, 0.5f, 0.0f});
  REQUIRE(masked->mean == 0.75);
  REQUIRE(KlOfTokens(policy, reference, {0, 0, 0}, "kl")->mean == 0);
  REQUIRE(KlOfTokens({}, {}, {}, "kl")->mean == 0);
}

TEST_CASE("KlOfTokens refuses arrays that do not fit", "[kl]") {
  REQUIRE(absl::IsInvalidArgument(KlOfTokens({-1}, {-1}, {1, 1}, "kl").status()));
  REQUIRE(absl::IsInvalidArgument(KlOfTokens({-1}, {-1, -2}, {}, "kl").status()));
  REQUIRE(absl::IsInvalidArgument(KlOfTokens({-1}, {-1}, {1}, "full").status()));
}

}  // namespace tandem
