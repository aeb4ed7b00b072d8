// A policy loss of actor.policy_loss.loss_mode: a formula over vectors of tokens as a LibTorch
// expression, so that autograd computes its gradient. To add one, add a source to policy/ that
// states formula and paper and defines
//   extern const PolicyLoss kGeoMeanLoss = {.terms = GeoMeanTerms};
// Its name in a configuration is the symbol's in snake case, geo_mean: the build finds it
// (deploy/cmake/TandemRegistry.cmake). docs/guides/first_loss.md explains it step by step. Formulas
// are verl 0.9.1's (core_algos.py), checked against its numbers. Only losses/ and its tests include
// this header, as it includes ATen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "trainer_worker/losses/loss_options.h"
#include "trainer_worker/losses/tensors.h"
#include "trainer_worker/losses/token_selection.h"

namespace tandem {

// The inputs of a loss, of shape [tokens] unless noted. Only log_probs has a gradient.
struct LossTensors {
  at::Tensor log_probs;      // under the policy that is being trained
  at::Tensor old_log_probs;  // under the policy that sampled
  at::Tensor advantages;
  at::Tensor mask;        // float 0 or 1: whether the token counts
  at::Tensor rows;        // int64: sequence of the token, 0 <= row < num_rows
  at::Tensor is_weights;  // factors of the loss; undefined: all are 1
  // Bool: the tokens that PolicyLoss::selection chose; undefined if it chooses none.
  at::Tensor selected;
  int64_t num_rows = 1;
};

// The result of a formula. Masks and approx_kl are for metrics and need no gradient; an undefined
// mask is a metric that this loss does not have, reported as 0.
struct PolicyTerms {
  at::Tensor loss;  // [tokens]; with Aggregation::kSampleMean [num_rows]
  // [tokens] 0 or 1: the ratio is out of range, so the token has no gradient or a smaller one.
  at::Tensor clipped;
  // [tokens] 0 or 1: limited by clip_ratio_c, or clipped from below.
  at::Tensor clipped_dual;
  at::Tensor approx_kl;  // [tokens] old log-prob - new log-prob
};

// How the terms become one number.
enum class Aggregation {
  kConfigured,  // by actor.loss_agg_mode
  // By seq-mean-token-mean, whatever the configuration says.
  kSeqMeanTokenMean,
  kSampleMean,  // terms are per sequence: their mean over the samples of the mini-batch
};

struct PolicyLoss {
  Aggregation aggregation = Aggregation::kConfigured;
  Selection selection = Selection::kNone;
  // The formula applies is_weights itself; otherwise the caller multiplies its token losses by
  // them.
  bool applies_is_weights = false;
  absl::Status (*check)(const PolicyLossOptions& options) = nullptr;  // null: all options are valid
  PolicyTerms (*terms)(const LossTensors& tensors, const PolicyLossOptions& options) = nullptr;
};

// InvalidArgument lists the known names.
absl::StatusOr<const PolicyLoss*> FindPolicyLoss(const std::string& name);
// Sorted by the names of the sources.
std::vector<std::string> PolicyLossNames();

// Common parts of the formulas. ClampedLogRatio: log(ratio) = new - old log-prob, clamped to ±20 so
// that its exp stays finite.
at::Tensor ClampedLogRatio(const LossTensors& tensors);
// [1 - clip_ratio_low, 1 + clip_ratio_high].
at::Tensor ClipRatio(const at::Tensor& ratio, const PolicyLossOptions& options);
// Sums the values of each sequence's counted tokens, [num_rows]. A NaN outside the mask does not
// count.
at::Tensor RowSums(const at::Tensor& values, const LossTensors& tensors);

}  // namespace tandem
