#include "common/rollout_correction/importance_weights.h"

#include <cmath>
#include <random>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Floats = std::vector<float>;

// Rollout log-probs are 0, so that the policy's are the log ratios.
struct WeightedRow {
  Floats policy, mask = {};
  Floats rollout = Floats(policy.size(), 0.0f);
  operator LogProbRow() const { return {.policy = policy, .rollout = rollout, .mask = mask}; }
};

ImportanceOptions Options(ImportanceLevel level,
                          const std::string& bounds,
                          bool normalize = false) {
  return {.level = level, .bounds = *ParseImportanceBounds(bounds), .normalize = normalize};
}

float LogOfWeight(double x) { return static_cast<float>(std::log(x)); }

std::map<std::string, double> MetricsOf(const ImportanceWeights& weights) {
  std::map<std::string, double> metrics;
  weights.AddMetrics(metrics);
  return metrics;
}

TEST_CASE("Token weights are ratios, cut at the upper bound", "[rollout_correction]") {
  ImportanceWeights weights(Options(ImportanceLevel::kToken, "2"));
  const WeightedRow row{.policy = {LogOfWeight(0.25), LogOfWeight(1.5), LogOfWeight(3), 0.0f}};
  const Floats got = weights.Weights(row);
  REQUIRE(got[0] == Approx(0.25));
  REQUIRE(got[1] == Approx(1.5));
  REQUIRE(got[2] == 2.0f);
  REQUIRE(got[3] == 1.0f);
}

TEST_CASE("A band makes weights outside it 0 and leaves the mask alone", "[rollout_correction]") {
  ImportanceWeights weights(Options(ImportanceLevel::kToken, "0.5_2"));
  const WeightedRow row{.policy = {LogOfWeight(0.25), LogOfWeight(1.5), LogOfWeight(3), 0.0f}};
  weights.Observe(row);
  const Floats got = weights.Weights(row);
  REQUIRE(got[0] == 0.0f);
  REQUIRE(got[1] == Approx(1.5));
  REQUIRE(got[2] == 0.0f);
  REQUIRE(MetricsOf(weights).at("rollout_is_oob_ratio") == 0.5);
  REQUIRE(MetricsOf(weights).at("rollout_is_min") == 0.0);
}

TEST_CASE("A sequence weight is the product of its tokens' ratios, on each of them",
          "[rollout_correction]") {
  ImportanceWeights weights(Options(ImportanceLevel::kSequence, "10"));
  const Floats got = weights.Weights(
      WeightedRow{.policy = {LogOfWeight(2), LogOfWeight(3), LogOfWeight(100)}, .mask = {1, 1, 0}});
  REQUIRE(got[0] == Approx(6));
  REQUIRE(got[1] == got[0]);
  REQUIRE(got[2] == 0.0f);
}

TEST_CASE("Huge ratios stay finite", "[rollout_correction]") {
  for (const ImportanceLevel level : {ImportanceLevel::kToken, ImportanceLevel::kSequence}) {
    ImportanceWeights weights(Options(level, "1e30"));
    const Floats up = weights.Weights(WeightedRow{.policy = {200.0f, 200.0f}});
    REQUIRE(up[0] == Approx(std::exp(20.0)));
    const Floats down = weights.Weights(WeightedRow{.policy = {-200.0f, -200.0f}});
    REQUIRE(down[0] == Approx(std::exp(-20.0)));
  }
}

TEST_CASE("Identical log-probs weigh exactly 1, whatever the options", "[rollout_correction]") {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-12.0f, 0.0f);
  for (const ImportanceLevel level : {ImportanceLevel::kToken, ImportanceLevel::kSequence}) {
    for (const std::string bounds : {"2", "0.5_2", "1_1"}) {
      for (const bool normalize : {false, true}) {
        ImportanceWeights weights(Options(level, bounds, normalize));
        std::vector<WeightedRow> rows;
        for (size_t length : {0u, 1u, 7u, 333u}) {
          WeightedRow row{.policy = Floats(length)};
          for (float& x : row.policy) x = uniform(random);
          row.rollout = row.policy;
          rows.push_back(row);
          weights.Observe(rows.back());
        }
        for (const WeightedRow& row : rows) {
          REQUIRE(weights.Weights(row) == Floats(row.policy.size(), 1.0f));
        }
        const auto metrics = MetricsOf(weights);
        REQUIRE(metrics.at("rollout_is_mean") == 1.0);
        REQUIRE(metrics.at("rollout_is_std") == 0.0);
        REQUIRE(metrics.at("rollout_is_max") == 1.0);
        REQUIRE(metrics.at("rollout_is_min") == 1.0);
        REQUIRE(metrics.at("rollout_is_ratio_fraction_high") == 0.0);
      }
    }
  }
}

TEST_CASE("Normalized token weights have mean 1 over the batch, not over each response",
          "[rollout_correction]") {
  ImportanceWeights weights(Options(ImportanceLevel::kToken, "100", true));
  const WeightedRow first{.policy = {LogOfWeight(1), LogOfWeight(3)}},
      second{.policy = {LogOfWeight(8), LogOfWeight(50)}, .mask = {1, 0}};
  weights.Observe(first);
  weights.Observe(second);
  REQUIRE(weights.Weights(first)[0] == Approx(0.25));
  REQUIRE(weights.Weights(first)[1] == Approx(0.75));
  REQUIRE(weights.Weights(second)[0] == Approx(2));
  REQUIRE(weights.Weights(second)[1] == 0.0f);
  REQUIRE(MetricsOf(weights).at("rollout_is_batch_norm_factor") == Approx(4));
}

TEST_CASE("Normalized sequence weights have mean 1 over responses, long ones counting once",
          "[rollout_correction]") {
  ImportanceWeights weights(Options(ImportanceLevel::kSequence, "100", true));
  const WeightedRow longer{.policy = {LogOfWeight(3), 0, 0, 0}},
      shorter{.policy = {LogOfWeight(1)}}, empty{.policy = {}};
  for (const WeightedRow& row : {longer, shorter, empty}) weights.Observe(row);
  REQUIRE(weights.Weights(longer)[3] == Approx(1.5));
  REQUIRE(weights.Weights(shorter)[0] == Approx(0.5));
}

TEST_CASE("Weights that are all 0 divide nothing", "[rollout_correction]") {
  ImportanceWeights weights(Options(ImportanceLevel::kToken, "0.9_1.1", true));
  const WeightedRow row{.policy = {LogOfWeight(3), LogOfWeight(0.1)}};
  weights.Observe(row);
  REQUIRE(weights.Weights(row) == Floats{0.0f, 0.0f});
  REQUIRE(weights.all_zero());
  REQUIRE(MetricsOf(weights).at("rollout_is_batch_norm_factor") == 1.0);
  weights.Observe(WeightedRow{.policy = {0.0f}});
  REQUIRE_FALSE(weights.all_zero());
}

}  // namespace
}  // namespace tandem
