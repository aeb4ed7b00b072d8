#include "trainer_worker/losses/bypass_loss.h"

#include <utility>

#include <ATen/ATen.h>

#include "common/base/status_macros.h"
#include "trainer_worker/losses/token_losses.h"

namespace tandem {
namespace {

// The tokens of one sequence, wherever they stand.
struct Sequence {
  std::vector<size_t> places;
  std::vector<float> policy, rollout, mask;

  LogProbRow row() const { return {.policy = policy, .rollout = rollout, .mask = mask}; }
};

std::vector<Sequence> SequencesOf(const LossTokens& tokens) {
  std::vector<Sequence> sequences(static_cast<size_t>(tokens.num_rows));
  for (size_t i = 0; i < tokens.log_probs.size(); ++i) {
    Sequence& sequence =
        sequences.at(tokens.rows.empty() ? 0 : static_cast<size_t>(tokens.rows[i]));
    sequence.places.push_back(i);
    sequence.policy.push_back(tokens.log_probs[i]);
    sequence.rollout.push_back(tokens.old_log_probs[i]);
    sequence.mask.push_back(tokens.mask.empty() ? 1.0f : tokens.mask[i]);
  }
  return sequences;
}

void Scatter(const Sequence& sequence, const std::vector<float>& from, std::vector<float>& to) {
  for (size_t t = 0; t < sequence.places.size(); ++t) to[sequence.places[t]] = from[t];
}

at::Tensor Copy(const std::vector<float>& values) { return at::tensor(values, at::kFloat); }

absl::StatusOr<LossResult> Reinforce(const LossTokens& tokens, const LossScale& scale) {
  const at::Tensor log_probs = Copy(tokens.log_probs).requires_grad_(true);
  const at::Tensor mask = Copy(tokens.mask);
  at::Tensor rows = at::zeros({log_probs.numel()}, at::kLong);
  std::copy(tokens.rows.begin(), tokens.rows.end(), rows.data_ptr<int64_t>());
  at::Tensor term = -Copy(tokens.advantages) * log_probs;
  if (!tokens.is_weights.empty()) term = term * Copy(tokens.is_weights);
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor loss,
                          AggregateLoss(term, mask, rows, tokens.num_rows, scale));
  loss.backward();
  LossResult result;
  result.loss = result.policy_loss = loss.detach().item<double>();
  for (size_t i = 0; i < tokens.log_probs.size(); ++i) {
    if (tokens.mask[i] == 0) continue;
    result.tokens += 1;
    result.approx_kl_sum += static_cast<double>(tokens.old_log_probs[i]) - tokens.log_probs[i];
  }
  const at::Tensor gradient = log_probs.grad().contiguous();
  const float* data = gradient.data_ptr<float>();
  result.grad_log_probs.assign(data, data + gradient.numel());
  return result;
}

}  // namespace

absl::StatusOr<BypassCorrection> CorrectInBypass(const LossTokens& tokens,
                                                 const RolloutCorrectionOptions& options) {
  if (tokens.old_log_probs.size() != tokens.log_probs.size()) {
    return InvalidArgument("{} log-probs and {} of the rollout", tokens.log_probs.size(),
                           tokens.old_log_probs.size());
  }
  TANDEM_ASSIGN_OR_RETURN(RolloutCorrection correction, RolloutCorrection::Create(options));
  const std::vector<Sequence> sequences = SequencesOf(tokens);
  for (const Sequence& sequence : sequences) {
    TANDEM_RETURN_IF_ERROR(correction.Observe(sequence.row()));
  }
  BypassCorrection result;
  TANDEM_ASSIGN_OR_RETURN(result.metrics, correction.Metrics());
  if (correction.weighs()) result.weights.resize(tokens.log_probs.size());
  result.mask.resize(tokens.log_probs.size());
  for (const Sequence& sequence : sequences) {
    if (correction.weighs()) Scatter(sequence, correction.Weights(sequence.row()), result.weights);
    Scatter(sequence, correction.rejects() ? correction.Mask(sequence.row()) : sequence.mask,
            result.mask);
  }
  return result;
}

absl::StatusOr<LossResult> ComputeBypassLoss(const LossTokens& tokens,
                                             const BypassOptions& bypass,
                                             const PolicyLossOptions& options,
                                             const LossScale& scale) {
  const bool reinforce = bypass.loss_type == "reinforce";
  if (!reinforce && bypass.loss_type != "ppo_clip") {
    return InvalidArgument(
        "algorithm.rollout_correction.loss_type is \"{}\"; use ppo_clip or reinforce",
        bypass.loss_type);
  }
  TANDEM_ASSIGN_OR_RETURN(BypassCorrection corrected, CorrectInBypass(tokens, bypass.correction));
  LossTokens kept = tokens;
  kept.mask = std::move(corrected.mask);
  if (!reinforce) return ComputePolicyLoss(kept, options, scale);
  kept.is_weights = std::move(corrected.weights);
  try {
    return Reinforce(kept, scale);
  } catch (const std::exception& error) {
    return Internal("policy loss over {} tokens: {}", tokens.log_probs.size(), error.what());
  }
}

}  // namespace tandem
