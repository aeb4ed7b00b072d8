#include "controller/algorithm/kl_penalty.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

float Kl(const std::string& name, float log_prob, float ref) {
  const auto values = KlPenalty({log_prob}, {ref}, name);
  REQUIRE(values.ok());
  return values->front();
}

}  // namespace

TEST_CASE("KlPenalty knows verl's estimators", "[kl]") {
  // log p - log q = -1/2
  REQUIRE(Kl("kl", -1.0f, -0.5f) == -0.5f);
  REQUIRE(Kl("k1", -1.0f, -0.5f) == -0.5f);
  REQUIRE(Kl("abs", -1.0f, -0.5f) == 0.5f);
  REQUIRE(Kl("mse", -1.0f, -0.5f) == 0.125f);
  REQUIRE(Kl("low_var_kl", -1.0f, -0.5f) == Approx(std::exp(0.5) - 1.5).epsilon(1e-6));
  REQUIRE(Kl("k3", -30.0f, 0.0f) == 10.0f);
}

TEST_CASE("KlPenalty has the same values under verl's names with a plus", "[kl]") {
  for (const std::string name : {"kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3"}) {
    INFO(name);
    REQUIRE(Kl(name + "+", -1.25f, -0.5f) == Kl(name, -1.25f, -0.5f));
  }
  REQUIRE(absl::IsInvalidArgument(KlPenalty({0}, {0}, "k3++").status()));
  REQUIRE(absl::IsInvalidArgument(KlPenalty({0}, {0}, "+").status()));
}

TEST_CASE("KlPenalty's exponential is the one in double, rounded once", "[kl]") {
  // A C library's own expf rounds some of these otherwise.
  const std::vector<float> policy(200'000, 0.0f);
  std::vector<float> ref(policy.size()), want(policy.size());
  for (size_t i = 0; i < ref.size(); ++i) {
    const float reverse = -3.0f + 5e-5f * static_cast<float>(i);
    ref[i] = reverse;
    const auto exponential = static_cast<float>(std::exp(static_cast<double>(reverse)));
    want[i] = std::min(exponential - reverse - 1.0f, 10.0f);
  }
  REQUIRE((KlPenalty(policy, ref, "k3").value() == want));
}

TEST_CASE("KlPenalty refuses unknown names and unequal lengths", "[kl]") {
  REQUIRE(absl::IsInvalidArgument(KlPenalty({0}, {0}, "full").status()));
  REQUIRE(absl::IsInvalidArgument(KlPenalty({0}, {0, 0}, "kl").status()));
}

}  // namespace tandem
