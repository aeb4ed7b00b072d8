#include <cmath>
#include <random>

#include <catch2/catch.hpp>

#include "common/rollout_correction/off_policy_metrics.h"

namespace tandem {
namespace {

constexpr const char* kPrefix = "training/rollout_probs_diff_";
constexpr const char* kPearson = "training/rollout_actor_probs_pearson_corr";

float LogOfProbability(double x) { return static_cast<float>(std::log(x)); }

double Metric(const ProbabilityComparison& comparison, const std::string& what) {
  return comparison.Metrics().at(kPrefix + what);
}

TEST_CASE("Differences are of probabilities, not of log-probs", "[rollout_correction]") {
  ProbabilityComparison comparison;
  comparison.Add(LogOfProbability(0.5), LogOfProbability(0.25));
  comparison.Add(LogOfProbability(0.25), LogOfProbability(0.125));
  REQUIRE(Metric(comparison, "valid") == 1);
  REQUIRE(Metric(comparison, "max") == Approx(0.25));
  REQUIRE(Metric(comparison, "mean") == Approx(0.1875));
  REQUIRE(Metric(comparison, "std") == Approx(0.0625 * std::sqrt(2.0)));
  REQUIRE(comparison.Metrics().at(kPearson) == Approx(1));
}

TEST_CASE("Series that run against each other correlate by -1", "[rollout_correction]") {
  ProbabilityComparison comparison;
  for (const double p : {0.1, 0.4, 0.7}) {
    comparison.Add(LogOfProbability(p), LogOfProbability(0.8 - p));
  }
  REQUIRE(comparison.Metrics().at(kPearson) == Approx(-1));
}

TEST_CASE("Identical log-probs differ by exactly 0 and correlate by 1", "[rollout_correction]") {
  ProbabilityComparison comparison;
  for (const float x : {-0.1f, -2.0f, -7.5f}) comparison.Add(x, x);
  for (const std::string what : {"max", "mean", "std"}) REQUIRE(Metric(comparison, what) == 0.0);
  REQUIRE(comparison.Metrics().at(kPearson) == Approx(1).epsilon(1e-15));
}

TEST_CASE("Without tokens the comparison is not valid, of one it has no spread",
          "[rollout_correction]") {
  ProbabilityComparison comparison;
  const std::vector<float> one{-1.0f}, none{0.0f};
  comparison.Add(LogProbRow{.policy = one, .rollout = one, .mask = none});
  REQUIRE(Metric(comparison, "valid") == 0);
  REQUIRE(std::isnan(Metric(comparison, "mean")));
  REQUIRE(std::isnan(comparison.Metrics().at(kPearson)));
  comparison.Add(-1.0f, -2.0f);
  REQUIRE(Metric(comparison, "valid") == 1);
  REQUIRE(Metric(comparison, "mean") == Metric(comparison, "max"));
  REQUIRE(std::isnan(Metric(comparison, "std")));
}

TEST_CASE("Parts that are joined give the numbers of the whole", "[rollout_correction]") {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-6.0f, 0.0f);
  ProbabilityComparison whole, joined, part;
  for (int i = 0; i < 1000; ++i) {
    const float x = uniform(random), y = x + 0.1f * uniform(random);
    whole.Add(x, y);
    part.Add(x, y);
    if (i % 97 != 0) continue;
    joined.Join(part);
    part = {};
  }
  joined.Join(part);
  joined.Join({});
  const auto want = whole.Metrics();
  for (const auto& [name, value] : joined.Metrics()) {
    INFO(name);
    REQUIRE(value == Approx(want.at(name)).epsilon(1e-12));
  }
}

}  // namespace
}  // namespace tandem
