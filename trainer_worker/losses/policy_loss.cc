#include "trainer_worker/losses/policy_loss.h"

#include <ATen/Parallel.h>

#include "common/base/status_macros.h"
#include "trainer_worker/losses/token_losses.h"

namespace tandem {
namespace {

at::Tensor Wrap(const std::vector<float>& values) {
  // from_blob never writes: the tensors are only read.
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<int64_t>(values.size())},
                       at::kFloat);
}

at::Tensor Leaf(const std::vector<float>& values) {
  return Wrap(values).clone().requires_grad_(true);
}

std::vector<float> Gradient(const at::Tensor& leaf) {
  std::vector<float> values(static_cast<size_t>(leaf.numel()), 0.0f);
  if (!leaf.grad().defined()) return values;
  const at::Tensor dense = leaf.grad().contiguous();
  const float* data = dense.data_ptr<float>();
  values.assign(data, data + dense.numel());
  return values;
}

double Number(const at::Tensor& scalar) { return scalar.detach().item<double>(); }

// In double and in order, so that the split into micro-batches hardly shows in metrics.
double SumWhere(const at::Tensor& values, const at::Tensor& mask) {
  return Number(MaskedSum(values.detach().to(at::kDouble), mask.to(at::kDouble)));
}

absl::Status CheckLengths(const LossTokens& tokens, const PolicyLossOptions& options) {
  const size_t n = tokens.log_probs.size();
  auto fits = [n](const auto& values, bool needed) {
    return values.size() == n || (values.empty() && !needed);
  };
  if (!fits(tokens.old_log_probs, true)) return InvalidArgument("old log-probs: wrong length");
  if (!fits(tokens.advantages, true)) return InvalidArgument("advantages: wrong length");
  if (!fits(tokens.ref_log_probs, options.use_kl_loss)) {
    return InvalidArgument("actor.use_kl_loss needs the reference log-prob of every token");
  }
  if (!fits(tokens.entropy, options.entropy_coeff != 0)) {
    return InvalidArgument("actor.entropy_coeff needs the entropy of every token");
  }
  if (!fits(tokens.is_weights, false) || !fits(tokens.mask, false) || !fits(tokens.rows, false)) {
    return InvalidArgument("importance weights, mask or rows: wrong length");
  }
  return absl::OkStatus();
}

struct Graph {
  at::Tensor log_probs, entropy, mask, rows;
  const LossTokens* tokens = nullptr;
};

// Builds the loss and fills the parts of `result` that need no gradient.
absl::StatusOr<at::Tensor> BuildLoss(const Graph& graph,
                                     const PolicyLossOptions& options,
                                     const LossScale& scale,
                                     LossResult& result) {
  const LossTokens& tokens = *graph.tokens;
  auto aggregate = [&](const at::Tensor& values) {
    return AggregateLoss(values, graph.mask, graph.rows, tokens.num_rows, scale);
  };
  const VanillaTerms terms =
      VanillaLoss(graph.log_probs, Wrap(tokens.old_log_probs), Wrap(tokens.advantages), options);
  at::Tensor token_loss = terms.loss;
  if (!tokens.is_weights.empty()) token_loss = token_loss * Wrap(tokens.is_weights);
  TANDEM_ASSIGN_OR_RETURN(at::Tensor loss, aggregate(token_loss));
  result.policy_loss = Number(loss);
  result.clipped_sum = SumWhere(terms.clipped, graph.mask);
  result.clipped_dual_sum = SumWhere(terms.clipped_dual, graph.mask);
  result.approx_kl_sum = SumWhere(terms.approx_kl, graph.mask);
  if (graph.entropy.defined()) {
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor entropy, aggregate(graph.entropy));
    result.entropy = Number(entropy);
    if (options.entropy_coeff != 0) loss = loss - options.entropy_coeff * entropy;
  }
  if (options.use_kl_loss) {
    TANDEM_ASSIGN_OR_RETURN(
        const at::Tensor kl,
        KlPenalty(graph.log_probs, Wrap(tokens.ref_log_probs), options.kl_loss_type));
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor kl_loss, aggregate(kl));
    result.kl_loss = Number(kl_loss);
    loss = loss + options.kl_loss_coef * kl_loss;
  }
  result.loss = Number(loss);
  return loss;
}

absl::StatusOr<LossResult> Compute(const LossTokens& tokens,
                                   const PolicyLossOptions& options,
                                   const LossScale& scale) {
  LossResult result;
  Graph graph{.log_probs = Leaf(tokens.log_probs), .tokens = &tokens};
  graph.mask =
      tokens.mask.empty() ? at::ones_like(graph.log_probs, at::kFloat).detach() : Wrap(tokens.mask);
  const int64_t count = graph.log_probs.numel();
  graph.rows = at::zeros({count}, at::kLong);
  std::copy(tokens.rows.begin(), tokens.rows.end(), graph.rows.data_ptr<int64_t>());
  if (!tokens.entropy.empty()) graph.entropy = Leaf(tokens.entropy);
  result.tokens = Number(graph.mask.to(at::kDouble).sum());
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor loss, BuildLoss(graph, options, scale, result));
  loss.backward();
  result.grad_log_probs = Gradient(graph.log_probs);
  if (options.entropy_coeff != 0) result.grad_entropy = Gradient(graph.entropy);
  return result;
}

}  // namespace

absl::Status CheckPolicyLossOptions(const PolicyLossOptions& options) {
  if (!(options.clip_ratio_c > 1)) {
    return InvalidArgument("actor.clip_ratio_c is {}, but the dual clip must be above 1",
                           options.clip_ratio_c);
  }
  if (!options.use_kl_loss) return absl::OkStatus();
  const at::Tensor zero = at::zeros({1});
  return KlPenalty(zero, zero, options.kl_loss_type).status();
}

absl::StatusOr<LossResult> ComputePolicyLoss(const LossTokens& tokens,
                                             const PolicyLossOptions& options,
                                             const LossScale& scale) {
  try {
    TANDEM_RETURN_IF_ERROR(CheckPolicyLossOptions(options));
    TANDEM_RETURN_IF_ERROR(CheckLengths(tokens, options));
    return Compute(tokens, options, scale);
  } catch (const std::exception& error) {
    return Internal("policy loss over {} tokens: {}", tokens.log_probs.size(), error.what());
  }
}

void UseOneTorchThread() {
  // May be set once in a process only.
  static const bool once = [] { return at::set_num_interop_threads(1), true; }();
  (void)once;
  at::set_num_threads(1);  // OpenMP's number is of the calling thread
}

}  // namespace tandem
