// The loss of bypass mode against the numbers of the reference implementation.
#include <catch2/catch.hpp>

#include "common/comm/communicator.h"
#include "tests/trainer_worker/losses/loss_golden.h"
#include "trainer_worker/losses/bypass_loss.h"

namespace tandem {
namespace {

using testing::GoldenCase;
using testing::GoldenDir;
using testing::GoldenFamily;
using testing::GoldenTensor;
using testing::Json;
using testing::ParseTensor;
using testing::RowsOf;
using testing::ScaleOf;

constexpr double kBypassRtol = 1e-4, kBypassAtol = 1e-5;

std::optional<std::string> BypassText(const Json& options, const char* key) {
  if (!options.contains(key) || options.at(key).is_null()) return std::nullopt;
  const Json& value = options.at(key);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

BypassOptions BypassOf(const Json& json) {
  BypassOptions options;
  options.loss_type = json.value("loss_type", "ppo_clip");
  options.correction.rollout_is = BypassText(json, "rollout_is");
  options.correction.rollout_is_threshold =
      BypassText(json, "rollout_is_threshold").value_or("2.0");
  options.correction.rollout_is_batch_normalize = json.value("rollout_is_batch_normalize", false);
  options.correction.rollout_rs = BypassText(json, "rollout_rs");
  options.correction.rollout_rs_threshold = BypassText(json, "rollout_rs_threshold");
  return options;
}

LossTokens BypassTokens(const Json& scenario) {
  const GoldenTensor log_prob = ParseTensor(scenario.at("log_prob"));
  LossTokens tokens;
  tokens.log_probs = log_prob.Floats();
  tokens.old_log_probs = ParseTensor(scenario.at("old_log_prob")).Floats();
  tokens.advantages = ParseTensor(scenario.at("advantages")).Floats();
  tokens.mask = ParseTensor(scenario.at("response_mask")).Floats();
  tokens.num_rows = log_prob.shape.at(0);
  tokens.rows = RowsOf(log_prob);
  return tokens;
}

// A spread over tokens comes from a difference of squares in float32 there.
double AtolOfBypass(const std::string& name, const RolloutCorrectionOptions& options) {
  if (!name.ends_with("_std") || name.ends_with("_seq_std")) return kBypassAtol;
  const bool weights = name.find("rollout_is_") != std::string::npos;
  const std::string text =
      weights ? options.rollout_is_threshold : options.rollout_rs_threshold.value_or("1");
  return 1e-3 * std::stod(text.substr(text.rfind('_') + 1));
}

std::map<std::string, double> CorrectionMetrics(const LossTokens& tokens,
                                                const RolloutCorrectionOptions& options) {
  BypassMetrics metrics;
  for (int64_t row = 0; row < tokens.num_rows; ++row) metrics.AddSample(static_cast<uint64_t>(row));
  for (size_t i = 0; i < tokens.log_probs.size(); ++i) {
    if (tokens.mask[i] == 0) continue;
    metrics.AddToken(static_cast<uint64_t>(tokens.rows[i]), tokens.log_probs[i],
                     tokens.old_log_probs[i]);
  }
  SoloCommunicator solo;
  const auto reduced = metrics.Reduce(options, solo);
  REQUIRE(reduced.ok());
  return *reduced;
}

void CheckBypass(const GoldenFamily& family, const GoldenCase& c) {
  const LossTokens tokens = BypassTokens(family.Scenario(c));
  const BypassOptions bypass = BypassOf(c.options.at("rollout_correction"));
  PolicyLossOptions options;
  options.clip_ratio_low = c.options.at("clip_ratio_low").get<double>();
  options.clip_ratio_high = c.options.at("clip_ratio_high").get<double>();
  options.clip_ratio_c = c.options.at("clip_ratio_c").get<double>();
  const double width = static_cast<double>(tokens.log_probs.size()) /
                       static_cast<double>(std::max<int64_t>(tokens.num_rows, 1));
  options.bypass = bypass;
  const auto result = ComputePolicyLoss(
      tokens, options, ScaleOf(c.options, c.options.at("global_batch_info"), width));
  if (c.raises) {
    REQUIRE(result.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  REQUIRE(testing::IsClose(result->loss, ParseTensor(c.outputs.at("loss")).values[0], kBypassRtol,
                           kBypassAtol));
  const GoldenTensor gradient = ParseTensor(c.outputs.at("grad_log_prob"));
  double largest = 0;
  for (const double value : gradient.values) largest = std::max(largest, std::abs(value));
  REQUIRE(testing::CompareValues(result->grad_log_probs, gradient.values, kBypassRtol,
                                 std::max(kBypassAtol, 1e-6 * largest)) == "");
  auto metrics = CorrectionMetrics(tokens, bypass.correction);
  metrics["actor/ppo_kl"] = result->approx_kl_sum / (result->tokens + 1e-8);
  metrics["actor/pg_clipfrac"] = result->clipped_sum / (result->tokens + 1e-8);
  metrics["actor/pg_clipfrac_lower"] = result->clipped_dual_sum / (result->tokens + 1e-8);
  for (const auto& [name, value] : c.outputs.at("metrics").items()) {
    INFO(name);
    const double want = testing::ParseNumber(value);
    if (!std::isfinite(want) && name.starts_with("rollout_corr/")) {
      REQUIRE_FALSE(metrics.contains(name));
      continue;
    }
    REQUIRE(testing::IsClose(metrics.at(name), want, kBypassRtol,
                             AtolOfBypass(name, bypass.correction)));
  }
}

TEST_CASE("The loss of bypass mode equals the golden numbers", "[golden][losses]") {
  testing::RunGoldenFamily(testing::ReadGoldenFamily(GoldenDir(), "policy_losses"),
                           {{"bypass_mode", CheckBypass}});
}

}  // namespace
}  // namespace tandem
