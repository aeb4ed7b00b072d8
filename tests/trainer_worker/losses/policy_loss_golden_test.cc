// Losses against the numbers of the reference implementation.
#include <catch2/catch.hpp>

#include "common/comm/communicator.h"
#include "tests/trainer_worker/losses/loss_golden.h"
#include "trainer_worker/losses/policy_loss.h"
#include "trainer_worker/losses/policy_loss_registry.h"
#include "trainer_worker/losses/token_losses.h"

namespace tandem {
namespace {

using namespace tandem::testing;

PolicyLossOptions LossOptionsOf(const Json& options) {
  PolicyLossOptions result;
  const auto set = [&](const char* key, double& value) { value = options.value(key, value); };
  result.loss_mode = options.at("loss_mode").get<std::string>();
  set("clip_ratio_low", result.clip_ratio_low);
  set("clip_ratio_high", result.clip_ratio_high);
  set("clip_ratio_c", result.clip_ratio_c);
  set("tau_pos", result.tau_pos);
  set("tau_neg", result.tau_neg);
  set("clip_cov_ratio", result.clip_cov_ratio);
  set("clip_cov_lb", result.clip_cov_lb);
  set("clip_cov_ub", result.clip_cov_ub);
  set("kl_cov_ratio", result.kl_cov_ratio);
  set("ppo_kl_coef", result.ppo_kl_coef);
  result.dro_beta = Optional(options, "dro_beta");
  return result;
}

void RequireGradient(const std::vector<float>& got, const GoldenTensor& want) {
  double largest = 0;
  for (double value : want.values) largest = std::max(largest, std::abs(value));
  REQUIRE(CompareValues(got, want.values, 1e-4, std::max(1e-5, 1e-6 * largest)) == "");
}

// Every metric that the case has and that is one of `known`; it may have no other.
void RequireLossMetrics(const Json& metrics, const std::map<std::string, double>& known) {
  for (const auto& [name, want] : metrics.items()) {
    INFO(name);
    REQUIRE(known.contains(name));
    REQUIRE(IsClose(known.at(name), ParseNumber(want), 1e-4, 1e-5));
  }
}

std::map<std::string, double> MetricsOf(const LossResult& result,
                                        const PolicyLossOptions& options) {
  const double tokens = result.tokens + 1e-8;
  return {{"actor/pg_clipfrac", result.clipped_sum / tokens},
          {"actor/pg_clipfrac_lower", result.clipped_dual_sum / tokens},
          {"actor/ppo_kl", result.approx_kl_sum / tokens},
          {"actor/pg_loss", result.policy_loss},
          {"actor/entropy_loss", result.entropy},
          {"kl_loss", result.kl_loss},
          {"kl_coef", options.kl_loss_coef}};
}

// What the loss selects of the batch, as one rank that has all of it.
std::vector<uint8_t> SelectedOf(const LossTokens& tokens, const PolicyLossOptions& options) {
  if (SelectionOf(options) == Selection::kNone) return {};
  std::vector<SelectionToken> counted;
  for (size_t i = 0; i < tokens.log_probs.size(); ++i) {
    if (tokens.mask[i] == 0) continue;
    counted.push_back({.log_prob = tokens.log_probs[i],
                       .old_log_prob = tokens.old_log_probs[i],
                       .advantage = tokens.advantages[i],
                       .sample_id = static_cast<uint64_t>(tokens.rows[i]),
                       .position = static_cast<int64_t>(i)});
  }
  SoloCommunicator solo;
  const auto chosen = SelectTokens(SelectionOf(options), counted, options, {}, solo);
  REQUIRE(chosen.ok());
  std::vector<uint8_t> selected;
  size_t next = 0;
  for (const float counts : tokens.mask) selected.push_back(counts == 0 ? 0 : chosen->at(next++));
  return selected;
}

void CheckPolicyLoss(const GoldenFamily& family, const GoldenCase& c) {
  const Json& scenario = family.Scenario(c);
  const GoldenTensor log_prob = ParseTensor(scenario.at("log_prob"));
  LossTokens tokens;
  tokens.log_probs = log_prob.Floats();
  tokens.old_log_probs = ParseTensor(scenario.at("old_log_prob")).Floats();
  tokens.advantages = ParseTensor(scenario.at("advantages")).Floats();
  tokens.mask = ParseTensor(scenario.at("response_mask")).Floats();
  tokens.rows = RowsOf(log_prob);
  tokens.num_rows = log_prob.shape.at(0);
  if (c.options.at("use_rollout_is_weights").get<bool>()) {
    tokens.is_weights = ParseTensor(scenario.at("rollout_is_weights")).Floats();
  }
  const PolicyLossOptions options = LossOptionsOf(c.options);
  tokens.selected = SelectedOf(tokens, options);
  // The reference takes geo_mean's mean over the batch at hand, whatever the global one is.
  const bool local = options.loss_mode == "geo_mean";
  const LossScale scale =
      ScaleOf(c.options, local ? Json::object() : c.options.at("global_batch_info"),
              static_cast<double>(log_prob.shape.at(1)));
  const auto result = ComputePolicyLoss(tokens, options, scale);
  if (c.raises) {
    REQUIRE(result.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  REQUIRE(IsClose(result->loss, ParseTensor(c.outputs.at("loss")).values[0], 1e-4, 1e-5));
  RequireGradient(result->grad_log_probs, ParseTensor(c.outputs.at("grad_log_prob")));
  RequireLossMetrics(c.outputs.at("metrics"), MetricsOf(*result, options));
}

// Where the response tokens of each padded row lie in the packed arrays; -1: padding.
std::vector<int64_t> PackedPositions(const Json& inputs, int64_t width) {
  const auto prompts = inputs.at("prompt_lens").get<std::vector<int64_t>>();
  const auto responses = inputs.at("response_lens").get<std::vector<int64_t>>();
  std::vector<int64_t> positions;
  int64_t begin = 0;
  for (size_t row = 0; row < prompts.size(); ++row) {
    for (int64_t t = 0; t < width; ++t) {
      // Position i of the packed arrays predicts token i + 1.
      positions.push_back(t < responses[row] ? begin + prompts[row] - 1 + t : -1);
    }
    begin += prompts[row] + responses[row];
  }
  return positions;
}

std::vector<float> Unpack(const std::vector<float>& packed, const std::vector<int64_t>& positions) {
  std::vector<float> values;
  for (int64_t at : positions) values.push_back(at < 0 ? 0.0f : packed[static_cast<size_t>(at)]);
  return values;
}

std::vector<float> Pack(const std::vector<float>& values,
                        const std::vector<int64_t>& positions,
                        size_t size) {
  std::vector<float> packed(size, 0.0f);
  for (size_t i = 0; i < values.size(); ++i) {
    if (positions[i] >= 0) packed[static_cast<size_t>(positions[i])] = values[i];
  }
  return packed;
}

void CheckPpoLoss(const GoldenFamily& family, const GoldenCase& c) {
  const Json& inputs = family.Inputs(c);
  const GoldenTensor old = ParseTensor(inputs.at("old_log_probs"));
  const std::vector<int64_t> positions = PackedPositions(inputs, old.shape.at(1));
  const std::vector<float> packed = ParseTensor(inputs.at("log_probs_packed")).Floats();
  LossTokens tokens;
  tokens.log_probs = Unpack(packed, positions);
  tokens.entropy = Unpack(ParseTensor(inputs.at("entropy_packed")).Floats(), positions);
  tokens.old_log_probs = old.Floats();
  if (inputs.contains("ref_log_prob")) {
    tokens.ref_log_probs = ParseTensor(inputs.at("ref_log_prob")).Floats();
  }
  tokens.advantages = ParseTensor(inputs.at("advantages")).Floats();
  tokens.mask = ParseTensor(inputs.at("response_mask")).Floats();
  tokens.rows = RowsOf(old);
  tokens.num_rows = old.shape.at(0);
  PolicyLossOptions options = LossOptionsOf(c.options);
  options.use_kl_loss = c.options.at("use_kl_loss").get<bool>();
  options.kl_loss_coef = c.options.at("kl_loss_coef").get<double>();
  options.kl_loss_type = c.options.at("kl_loss_type").get<std::string>();
  options.entropy_coeff = c.options.at("entropy_coeff").get<double>();
  tokens.selected = SelectedOf(tokens, options);
  const LossScale scale = ScaleOf(c.options, c.options, static_cast<double>(old.shape.at(1)));
  const auto result = ComputePolicyLoss(tokens, options, scale);
  if (c.raises) {
    REQUIRE(result.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  REQUIRE(result.ok());
  REQUIRE(IsClose(result->loss, ParseTensor(c.outputs.at("loss")).values[0], 1e-4, 1e-5));
  RequireGradient(Pack(result->grad_log_probs, positions, packed.size()),
                  ParseTensor(c.outputs.at("grad_log_probs")));
  std::vector<float> grad_entropy = result->grad_entropy;
  grad_entropy.resize(positions.size(), 0.0f);
  RequireGradient(Pack(grad_entropy, positions, packed.size()),
                  ParseTensor(c.outputs.at("grad_entropy")));
  RequireLossMetrics(c.outputs.at("metrics"), MetricsOf(*result, options));
}

void CheckKlPenalty(const GoldenFamily&, const GoldenCase& c) {
  const at::Tensor log_prob = ToTensor(ParseTensor(c.inputs.at("logprob"))).requires_grad_(true);
  const at::Tensor reference = ToTensor(ParseTensor(c.inputs.at("ref_logprob")));
  const auto value = KlPenalty(log_prob, reference, c.options.at("kl_penalty").get<std::string>());
  if (c.raises) {
    REQUIRE(value.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  REQUIRE(value.ok());
  REQUIRE(CompareValues(Values(*value), ParseTensor(c.outputs.at("value")).values, 1e-5, 1e-6) ==
          "");
  value->sum().backward();
  REQUIRE(CompareValues(Values(log_prob.grad()), ParseTensor(c.outputs.at("grad_logprob")).values,
                        1e-5, 1e-6) == "");
}

TEST_CASE("Policy losses equal the golden numbers", "[golden][losses]") {
  std::map<std::string, GoldenCheck> checks = {{"ppo_loss", CheckPpoLoss}};
  for (const std::string& name : PolicyLossNames()) checks[name] = CheckPolicyLoss;
  RunGoldenFamily(ReadGoldenFamily(GoldenDir(), "policy_losses"), checks);
}

TEST_CASE("KL estimators equal the golden numbers", "[golden][losses]") {
  RunGoldenFamily(ReadGoldenFamily(GoldenDir(), "kl_penalty"), {{"kl_penalty", CheckKlPenalty}});
}

}  // namespace
}  // namespace tandem
