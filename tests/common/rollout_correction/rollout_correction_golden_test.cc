// Rollout correction and off-policy metrics against the numbers of the reference implementation.
#include <catch2/catch.hpp>

#include "common/rollout_correction/off_policy_metrics.h"
#include "common/rollout_correction/rollout_correction.h"
#include "tests/support/golden.h"
#include "tests/support/golden_tensor.h"

namespace tandem {
namespace {

using testing::GoldenCase;
using testing::GoldenDir;
using testing::GoldenFamily;
using testing::GoldenTensor;
using testing::Json;
using testing::ParseTensor;

constexpr double kCorrectionRtol = 1e-4, kCorrectionAtol = 1e-5;

struct LogProbBatch {
  std::vector<float> policy, rollout, mask;
  size_t rows = 0, width = 0;

  LogProbRow Row(size_t row) const {
    const auto cut = [&](const std::vector<float>& values) {
      return std::span(values).subspan(row * width, width);
    };
    return {.policy = cut(policy), .rollout = cut(rollout), .mask = cut(mask)};
  }
};

LogProbBatch BatchOf(const Json& json) {
  const GoldenTensor policy = ParseTensor(json.at("old_log_prob"));
  return {.policy = policy.Floats(),
          .rollout = ParseTensor(json.at("rollout_log_prob")).Floats(),
          .mask = ParseTensor(json.at("response_mask")).Floats(),
          .rows = static_cast<size_t>(policy.shape.at(0)),
          .width = static_cast<size_t>(policy.shape.at(1))};
}

const Json& CorrectionInputs(const GoldenFamily& family, const GoldenCase& c) {
  return c.scenario.empty() ? c.inputs : family.Scenario(c);
}

// As it would stand in a configuration; absent where the file says nothing or null.
std::optional<std::string> CorrectionText(const Json& options, const char* key) {
  if (!options.contains(key) || options.at(key).is_null()) return std::nullopt;
  const Json& value = options.at(key);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

RolloutCorrectionOptions CorrectionOptionsOf(const Json& json) {
  RolloutCorrectionOptions options;
  options.rollout_is = CorrectionText(json, "rollout_is");
  // The reference computes no weights without a threshold.
  if (json.contains("rollout_is_threshold") && json.at("rollout_is_threshold").is_null()) {
    options.rollout_is.reset();
  }
  options.rollout_is_threshold = CorrectionText(json, "rollout_is_threshold").value_or("2.0");
  options.rollout_is_batch_normalize = json.value("rollout_is_batch_normalize", false);
  options.rollout_rs = CorrectionText(json, "rollout_rs");
  options.rollout_rs_threshold = CorrectionText(json, "rollout_rs_threshold");
  return options;
}

struct CorrectedBatch {
  std::vector<float> weights, mask;
  std::map<std::string, double> metrics;
};

absl::StatusOr<CorrectedBatch> Correct(const LogProbBatch& batch,
                                       const RolloutCorrectionOptions& options) {
  auto correction = RolloutCorrection::Create(options);
  if (!correction.ok()) return correction.status();
  for (size_t row = 0; row < batch.rows; ++row) {
    if (absl::Status status = correction->Observe(batch.Row(row)); !status.ok()) return status;
  }
  const auto metrics = correction->Metrics();
  if (!metrics.ok()) return metrics.status();
  CorrectedBatch result{.metrics = *metrics};
  for (size_t row = 0; row < batch.rows; ++row) {
    for (const float w : correction->Weights(batch.Row(row))) result.weights.push_back(w);
    for (const float m : correction->Mask(batch.Row(row))) result.mask.push_back(m);
  }
  if (!correction->rejects()) result.mask = batch.mask;
  return result;
}

// The largest number in a threshold such as "0.5_2.0,0.3".
double LargestIn(const std::string& text) {
  double largest = 0;
  std::string number;
  for (const char c : text + ",") {
    if (c != ',' && c != '_') {
      number += c;
    } else if (!number.empty()) {
      largest = std::max(largest, std::stod(number));
      number.clear();
    }
  }
  return largest;
}

// A spread over tokens comes from a difference of squares in float32 there.
double AtolOfMetric(const std::string& name, const RolloutCorrectionOptions& options) {
  const bool difference = name.starts_with("rollout_corr/") && name.ends_with("_std");
  if (!difference || name.ends_with("_seq_std")) return kCorrectionAtol;
  const bool weights = name.find("rollout_is_") != std::string::npos;
  return 1e-3 * LargestIn(weights ? options.rollout_is_threshold
                                  : options.rollout_rs_threshold.value_or("1"));
}

void RequireCorrectionMetrics(const Json& want,
                              const std::map<std::string, double>& got,
                              const RolloutCorrectionOptions& options) {
  for (const auto& [name, value] : want.items()) {
    INFO(name);
    REQUIRE(got.contains(name));
    const double expected = testing::ParseNumber(value);
    INFO("got " << got.at(name) << ", want " << expected);
    REQUIRE(testing::IsClose(got.at(name), expected, kCorrectionRtol, AtolOfMetric(name, options)));
  }
  for (const auto& [name, value] : got) {
    INFO(name << ": not a metric of the reference");
    REQUIRE(want.contains(name));
  }
}

void CheckCorrection(const GoldenFamily& family, const GoldenCase& c) {
  const RolloutCorrectionOptions options = CorrectionOptionsOf(c.options);
  const auto result = Correct(BatchOf(CorrectionInputs(family, c)), options);
  if (c.raises) {
    REQUIRE(result.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  const Json& weights = c.outputs.at("rollout_is_weights");
  REQUIRE(weights.is_null() == result->weights.empty());
  if (!weights.is_null()) {
    REQUIRE(testing::CompareValues(result->weights, ParseTensor(weights).values, kCorrectionRtol,
                                   kCorrectionAtol) == "");
  }
  REQUIRE(testing::CompareValues(result->mask, ParseTensor(c.outputs.at("response_mask")).values, 0,
                                 0) == "");
  RequireCorrectionMetrics(c.outputs.at("metrics"), result->metrics, options);
}

void CheckDebugMetrics(const GoldenFamily& family, const GoldenCase& c) {
  const LogProbBatch batch = BatchOf(CorrectionInputs(family, c));
  ProbabilityComparison comparison;
  for (size_t row = 0; row < batch.rows; ++row) comparison.Add(batch.Row(row));
  RequireCorrectionMetrics(c.outputs.at("metrics"), comparison.Metrics(), {});
}

TEST_CASE("Rollout correction equals the golden numbers", "[golden][rollout_correction]") {
  testing::RunGoldenFamily(testing::ReadGoldenFamily(GoldenDir(), "rollout_correction"),
                           {{"compute_rollout_correction_and_rejection_mask", CheckCorrection},
                            {"calculate_debug_metrics", CheckDebugMetrics}});
}

}  // namespace
}  // namespace tandem
