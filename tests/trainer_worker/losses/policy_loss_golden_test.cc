// Losses against the numbers of the reference implementation.
#include <catch2/catch.hpp>

#include "tests/support/golden.h"
#include "tests/support/golden_tensor.h"
#include "trainer_worker/losses/policy_loss.h"
#include "trainer_worker/losses/token_losses.h"

namespace tandem {
namespace {

using testing::CompareValues;
using testing::GoldenCase;
using testing::GoldenFamily;
using testing::GoldenTensor;
using testing::Json;
using testing::ParseTensor;

// The same checks for the external set and for the one that is committed.
std::filesystem::path GoldenDir() {
#ifdef TANDEM_COMMITTED_GOLDEN
  return testing::CommittedGoldenDir();
#else
  return testing::GoldenDirOrSkip();
#endif
}

std::vector<int64_t> RowsOf(const GoldenTensor& tensor) {
  std::vector<int64_t> rows;
  const int64_t width = tensor.shape.at(1);
  for (size_t i = 0; i < tensor.values.size(); ++i) rows.push_back(static_cast<int64_t>(i) / width);
  return rows;
}

std::optional<double> Optional(const Json& options, const char* key) {
  if (!options.contains(key) || options.at(key).is_null()) return std::nullopt;
  return options.at(key).get<double>();
}

LossScale ScaleOf(const Json& options, const Json& global, double horizon) {
  LossScale scale;
  scale.mode = options.at("loss_agg_mode").get<std::string>();
  scale.dp_size = global.value("dp_size", int64_t{1});
  scale.batch_tokens = Optional(global, "batch_num_tokens");
  scale.batch_samples = Optional(global, "global_batch_size");
  scale.loss_scale_factor = Optional(global, "loss_scale_factor");
  scale.horizon = horizon;
  return scale;
}

PolicyLossOptions ClipOptions(const Json& options) {
  PolicyLossOptions result;
  result.clip_ratio_low = options.at("clip_ratio_low").get<double>();
  result.clip_ratio_high = options.at("clip_ratio_high").get<double>();
  result.clip_ratio_c = options.at("clip_ratio_c").get<double>();
  return result;
}

void RequireGradient(const std::vector<float>& got, const GoldenTensor& want) {
  double largest = 0;
  for (double value : want.values) largest = std::max(largest, std::abs(value));
  REQUIRE(CompareValues(got, want.values, 1e-4, std::max(1e-5, 1e-6 * largest)) == "");
}

void RequireMetric(const Json& metrics, const char* name, double got) {
  INFO(name);
  REQUIRE(testing::IsClose(got, testing::ParseNumber(metrics.at(name)), 1e-4, 1e-5));
}

void RequireVanillaMetrics(const Json& metrics, const LossResult& result) {
  const double tokens = result.tokens + 1e-8;
  RequireMetric(metrics, "actor/pg_clipfrac", result.clipped_sum / tokens);
  RequireMetric(metrics, "actor/pg_clipfrac_lower", result.clipped_dual_sum / tokens);
  RequireMetric(metrics, "actor/ppo_kl", result.approx_kl_sum / tokens);
}

void CheckVanilla(const GoldenFamily& family, const GoldenCase& c) {
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
  const LossScale scale = ScaleOf(c.options, c.options.at("global_batch_info"),
                                  static_cast<double>(log_prob.shape.at(1)));
  const auto result = ComputePolicyLoss(tokens, ClipOptions(c.options), scale);
  if (c.raises) {
    REQUIRE(result.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  REQUIRE(result.ok());
  const GoldenTensor loss = ParseTensor(c.outputs.at("loss"));
  REQUIRE(testing::IsClose(result->loss, loss.values[0], 1e-4, 1e-5));
  RequireGradient(result->grad_log_probs, ParseTensor(c.outputs.at("grad_log_prob")));
  RequireVanillaMetrics(c.outputs.at("metrics"), *result);
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
  const std::string mode = c.options.at("loss_mode").get<std::string>();
  if (mode != "vanilla") {  // a composition with a loss that the skip list names
    REQUIRE(testing::GoldenSkips().contains(family.name + "/" + mode));
    return;
  }
  const GoldenTensor old = ParseTensor(c.inputs.at("old_log_probs"));
  const std::vector<int64_t> positions = PackedPositions(c.inputs, old.shape.at(1));
  const std::vector<float> packed = ParseTensor(c.inputs.at("log_probs_packed")).Floats();
  LossTokens tokens;
  tokens.log_probs = Unpack(packed, positions);
  tokens.entropy = Unpack(ParseTensor(c.inputs.at("entropy_packed")).Floats(), positions);
  tokens.old_log_probs = old.Floats();
  if (c.inputs.contains("ref_log_prob")) {
    tokens.ref_log_probs = ParseTensor(c.inputs.at("ref_log_prob")).Floats();
  }
  tokens.advantages = ParseTensor(c.inputs.at("advantages")).Floats();
  tokens.mask = ParseTensor(c.inputs.at("response_mask")).Floats();
  tokens.rows = RowsOf(old);
  tokens.num_rows = old.shape.at(0);
  PolicyLossOptions options = ClipOptions(c.options);
  options.use_kl_loss = c.options.at("use_kl_loss").get<bool>();
  options.kl_loss_coef = c.options.at("kl_loss_coef").get<double>();
  options.kl_loss_type = c.options.at("kl_loss_type").get<std::string>();
  options.entropy_coeff = c.options.at("entropy_coeff").get<double>();
  const LossScale scale = ScaleOf(c.options, c.options, static_cast<double>(old.shape.at(1)));
  const auto result = ComputePolicyLoss(tokens, options, scale);
  if (c.raises) {
    REQUIRE(result.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  REQUIRE(result.ok());
  REQUIRE(testing::IsClose(result->loss, ParseTensor(c.outputs.at("loss")).values[0], 1e-4, 1e-5));
  RequireGradient(Pack(result->grad_log_probs, positions, packed.size()),
                  ParseTensor(c.outputs.at("grad_log_probs")));
  std::vector<float> grad_entropy = result->grad_entropy;
  grad_entropy.resize(positions.size(), 0.0f);
  RequireGradient(Pack(grad_entropy, positions, packed.size()),
                  ParseTensor(c.outputs.at("grad_entropy")));
  RequireVanillaMetrics(c.outputs.at("metrics"), *result);
  RequireMetric(c.outputs.at("metrics"), "actor/pg_loss", result->policy_loss);
  RequireMetric(c.outputs.at("metrics"), "actor/entropy_loss", result->entropy);
  if (options.use_kl_loss) RequireMetric(c.outputs.at("metrics"), "kl_loss", result->kl_loss);
}

at::Tensor ToTensor(const GoldenTensor& golden) {
  return at::tensor(golden.Floats()).reshape(golden.shape);
}

std::vector<float> Values(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().to(at::kFloat).contiguous();
  return {dense.data_ptr<float>(), dense.data_ptr<float>() + dense.numel()};
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
  const GoldenFamily family = testing::ReadGoldenFamily(GoldenDir(), "policy_losses");
  testing::RunGoldenFamily(family, {{"vanilla", CheckVanilla}, {"ppo_loss", CheckPpoLoss}});
}

TEST_CASE("KL estimators equal the golden numbers", "[golden][losses]") {
  const GoldenFamily family = testing::ReadGoldenFamily(GoldenDir(), "kl_penalty");
  testing::RunGoldenFamily(family, {{"kl_penalty", CheckKlPenalty}});
}

#ifndef TANDEM_COMMITTED_GOLDEN
void CheckAggLoss(const GoldenFamily&, const GoldenCase& c) {
  const GoldenTensor matrix = ParseTensor(c.inputs.at("loss_mat"));
  const at::Tensor loss = at::tensor(matrix.Floats()).requires_grad_(true);
  const at::Tensor mask = at::tensor(ParseTensor(c.inputs.at("loss_mask")).Floats());
  const LossScale scale = ScaleOf(c.options, c.options, static_cast<double>(matrix.shape.at(1)));
  const auto value =
      AggregateLoss(loss, mask, at::tensor(RowsOf(matrix)), matrix.shape.at(0), scale);
  if (c.raises) {
    REQUIRE(value.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  REQUIRE(value.ok());
  REQUIRE(CompareValues(Values(*value), ParseTensor(c.outputs.at("loss")).values, 1e-5, 5e-5) ==
          "");
  value->backward();
  REQUIRE(CompareValues(Values(loss.grad()), ParseTensor(c.outputs.at("grad_loss_mat")).values,
                        1e-5, 5e-5) == "");
}

using Reduction = at::Tensor (*)(const at::Tensor&, const at::Tensor&);

// Flat vectors are all that the losses need; a reduction along an axis is one call per row.
template <Reduction kReduce>
void CheckMasked(const GoldenFamily&, const GoldenCase& c) {
  const at::Tensor values = ToTensor(ParseTensor(c.inputs.at("values")));
  const at::Tensor mask = ToTensor(ParseTensor(c.inputs.at("mask")));
  std::vector<float> got;
  if (c.options.at("axis").is_null()) {
    got = Values(kReduce(values, mask));
  } else {
    for (int64_t row = 0; row < values.size(0); ++row) {
      got.push_back(Values(kReduce(values[row], mask[row])).at(0));
    }
  }
  REQUIRE(CompareValues(got, ParseTensor(c.outputs.at("value")).values, 1e-5, 5e-5) == "");
}

TEST_CASE("Masked sums and loss aggregation equal the golden numbers", "[golden][losses]") {
  const GoldenFamily family = testing::ReadGoldenFamily(GoldenDir(), "torch_functional");
  testing::RunGoldenFamily(family, {{"agg_loss", CheckAggLoss},
                                    {"masked_sum", CheckMasked<MaskedSum>},
                                    {"masked_mean", CheckMasked<MaskedMean>}});
}
#endif

}  // namespace
}  // namespace tandem
