#include "trainer_worker/losses/policy_loss.h"

#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>

#include "common/base/status.h"
#include "trainer_worker/losses/bypass_loss.h"
#include "trainer_worker/losses/policy_loss_registry.h"
#include "trainer_worker/losses/portable_math.h"
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

// Sums in double and in order, so that the split into micro-batches hardly changes metrics.
double SumWhere(const at::Tensor& values, const at::Tensor& mask) {
  if (!values.defined()) return 0;
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
  if (!fits(tokens.selected, SelectionOf(options) != Selection::kNone)) {
    return InvalidArgument("actor.policy_loss.loss_mode={} needs its selection of tokens",
                           options.loss_mode);
  }
  if (!fits(tokens.is_weights, false) || !fits(tokens.mask, false) || !fits(tokens.rows, false) ||
      !fits(tokens.stale, false)) {
    return InvalidArgument("importance weights, mask, rows or stale tokens: wrong length");
  }
  return absl::OkStatus();
}

// The inputs of the loss's expression.
struct Graph {
  const PolicyLoss* policy = nullptr;
  LossTensors tensors;  // of the policy loss; its mask excludes tokens that bypass mode rejects
  at::Tensor mask;      // includes tokens that bypass mode rejects
  at::Tensor entropy;

  absl::StatusOr<at::Tensor> Aggregate(const at::Tensor& values,
                                       const at::Tensor& counted,
                                       const LossScale& scale) const {
    return AggregateLoss(values, counted, tensors.rows, tensors.num_rows, scale);
  }
};

absl::StatusOr<const PolicyLoss*> FindLoss(const PolicyLossOptions& options) {
  if (!options.bypass) return FindPolicyLoss(options.loss_mode);
  TANDEM_ASSIGN_OR_RETURN(const std::string mode, BypassLossMode(*options.bypass));
  return FindPolicyLoss(mode);
}

absl::StatusOr<at::Tensor> AggregatePolicy(const Graph& graph,
                                           const at::Tensor& loss,
                                           const LossScale& scale) {
  if (graph.policy->aggregation == Aggregation::kSampleMean) {
    const double rows = static_cast<double>(graph.tensors.num_rows);
    return FixedSum(loss) / scale.batch_samples.value_or(rows) * static_cast<double>(scale.dp_size);
  }
  LossScale forced = scale;
  if (graph.policy->aggregation == Aggregation::kSeqMeanTokenMean)
    forced.mode = "seq-mean-token-mean";
  return graph.Aggregate(loss, graph.tensors.mask, forced);
}

absl::StatusOr<at::Tensor> BuildPolicyLoss(const Graph& graph,
                                           const PolicyLossOptions& options,
                                           const LossScale& scale,
                                           LossResult& result) {
  const LossTensors& tensors = graph.tensors;
  const PolicyTerms terms = graph.policy->terms(tensors, options);
  at::Tensor term = terms.loss;
  if (tensors.is_weights.defined() && !graph.policy->applies_is_weights)
    term = term * tensors.is_weights;
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor loss, AggregatePolicy(graph, term, scale));
  result.policy_loss = Number(loss);
  result.clipped_sum = SumWhere(terms.clipped, tensors.mask);
  result.clipped_dual_sum = SumWhere(terms.clipped_dual, tensors.mask);
  result.approx_kl_sum = SumWhere(terms.approx_kl, tensors.mask);
  return loss;
}

// The complete loss. Fills the parts of `result` that need no gradient.
absl::StatusOr<at::Tensor> BuildLoss(const Graph& graph,
                                     const LossTokens& tokens,
                                     const PolicyLossOptions& options,
                                     const LossScale& scale,
                                     LossResult& result) {
  TANDEM_ASSIGN_OR_RETURN(at::Tensor loss, BuildPolicyLoss(graph, options, scale, result));
  if (graph.entropy.defined()) {
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor entropy,
                            graph.Aggregate(graph.entropy, graph.mask, scale));
    result.entropy = Number(entropy);
    if (options.entropy_coeff != 0) loss = loss - options.entropy_coeff * entropy;
  }
  if (options.use_kl_loss) {
    TANDEM_ASSIGN_OR_RETURN(
        const at::Tensor kl,
        KlPenalty(graph.tensors.log_probs, Wrap(tokens.ref_log_probs), options.kl_loss_type));
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor kl_loss, graph.Aggregate(kl, graph.mask, scale));
    result.kl_loss = Number(kl_loss);
    loss = loss + options.kl_loss_coef * kl_loss;
  }
  result.loss = Number(loss);
  return loss;
}

void AddRatios(const LossTokens& tokens, const at::Tensor& mask, LossResult& result) {
  const float* counts = mask.data_ptr<float>();
  for (size_t i = 0; i < tokens.log_probs.size(); ++i) {
    if (counts[i] == 0) continue;
    const double difference = static_cast<double>(tokens.log_probs[i]) - tokens.old_log_probs[i];
    const double ratio = std::exp(std::clamp(difference, -20.0, 20.0));
    result.ratio_sum += ratio;
    result.ratio_min = std::min(result.ratio_min, ratio);
    result.ratio_max = std::max(result.ratio_max, ratio);
    if (!tokens.stale.empty() && tokens.stale[i] != 0) continue;
    result.current_tokens += 1;
    result.current_ratio_sum += ratio;
    result.current_ratio_min = std::min(result.current_ratio_min, ratio);
    result.current_ratio_max = std::max(result.current_ratio_max, ratio);
  }
}

LossTensors MakeTensors(const LossTokens& tokens) {
  LossTensors tensors{.log_probs = Leaf(tokens.log_probs),
                      .old_log_probs = Wrap(tokens.old_log_probs),
                      .advantages = Wrap(tokens.advantages),
                      .num_rows = tokens.num_rows};
  const int64_t count = tensors.log_probs.numel();
  tensors.mask = tokens.mask.empty() ? at::ones({count}, at::kFloat) : Wrap(tokens.mask);
  tensors.rows = at::zeros({count}, at::kLong);
  std::copy(tokens.rows.begin(), tokens.rows.end(), tensors.rows.data_ptr<int64_t>());
  if (!tokens.is_weights.empty()) tensors.is_weights = Wrap(tokens.is_weights);
  if (!tokens.selected.empty()) {
    tensors.selected = at::zeros({count}, at::kBool);
    std::copy(tokens.selected.begin(), tokens.selected.end(), tensors.selected.data_ptr<bool>());
  }
  return tensors;
}

absl::StatusOr<LossResult> Compute(const LossTokens& tokens,
                                   const PolicyLossOptions& options,
                                   const LossScale& scale) {
  LossResult result;
  TANDEM_ASSIGN_OR_RETURN(const PolicyLoss* policy, FindLoss(options));
  Graph graph{.policy = policy, .tensors = MakeTensors(tokens)};
  graph.mask = graph.tensors.mask;
  BypassCorrection correction;  // keeps the memory that the tensors read
  if (options.bypass) {
    TANDEM_ASSIGN_OR_RETURN(correction, CorrectInBypass(tokens, *options.bypass));
    graph.tensors.mask = Wrap(correction.mask);
    graph.tensors.is_weights = correction.weights.empty() ? at::Tensor() : Wrap(correction.weights);
  }
  if (!tokens.entropy.empty()) graph.entropy = Leaf(tokens.entropy);
  result.tokens = Number(graph.tensors.mask.to(at::kDouble).sum());
  AddRatios(tokens, graph.tensors.mask, result);
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor loss, BuildLoss(graph, tokens, options, scale, result));
  loss.backward();
  result.grad_log_probs = Gradient(graph.tensors.log_probs);
  if (options.entropy_coeff != 0) result.grad_entropy = Gradient(graph.entropy);
  return result;
}

}  // namespace

Selection SelectionOf(const PolicyLossOptions& options) {
  const auto policy = FindLoss(options);
  return policy.ok() ? (*policy)->selection : Selection::kNone;
}

absl::Status CheckPolicyLossOptions(const PolicyLossOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const PolicyLoss* policy, FindLoss(options));
  if (policy->check != nullptr) TANDEM_RETURN_IF_ERROR(policy->check(options));
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
  // PyTorch lets a process set it only once.
  static const bool once = [] { return at::set_num_interop_threads(1), true; }();
  (void)once;
  at::set_num_threads(1);  // OpenMP's setting is per thread
}

}  // namespace tandem
