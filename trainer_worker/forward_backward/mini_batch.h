// One mini-batch on one rank: packs the samples, runs the forward and backward pass of every
// micro-batch, and sums gradients and metrics over micro-batches and ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/memory/worker_memory.h"
#include "common/types/sample.h"
#include "trainer_worker/forward_backward/layer_loop.h"
#include "trainer_worker/forward_backward/log_prob_compare.h"
#include "trainer_worker/losses/policy_loss.h"

namespace tandem {

// One log-prob per response token, by sample id; 0 if the token is not trained.
using LogProbsBySample = std::unordered_map<uint64_t, std::vector<float>>;

// What a scoring pass computes in addition to log-probs.
struct ScoreRequest {
  bool sum_pi_squared = false;
  // Compare with the log-probs that the rollout recorded, where samples have them. Tokens that
  // weights older than this version sampled are left out.
  std::optional<int64_t> compared_version;
};

// What a scoring pass on one rank computed besides log-probs.
struct ScoreExtras {
  LogProbsBySample sum_pi_squared;  // empty unless requested
  LogProbComparison comparison;
};

// Options of a pass over samples, for training and scoring.
struct PassOptions {
  PackingLimits limits;
  Recompute recompute = Recompute::kAuto;
  int64_t activation_budget_bytes = 0;
  double dropout = 0;  // dropout probability before adapters; used by training only
  // The largest shape that a micro-batch of the run may have, so that memory for it is allocated at
  // the start. Without rows it is unknown, and memory grows with the data.
  BatchShape largest;
};

struct MiniBatchRequest {
  double global_tokens = 0;  // trained response tokens of the mini-batch, all ranks
  double global_samples = 0;
  bool compare_log_probs = false;
  PolicyLossOptions loss;
  std::string loss_agg_mode = "token-mean";
  double loss_scale_factor = 1;  // of seq-mean-token-sum-norm
  // No optimizer step was done since the old log-probs were computed under weight version
  // `version`, so tokens of that version must have an importance ratio of exactly 1.
  bool first_update = false;
  // Log-probs that differ from the rollout's are not an error: rollout correction is on.
  bool tolerate_mismatch = false;
  // A scoring pass has compared the step's log-probs under these weights.
  bool log_probs_compared = false;
  int64_t version = 0;
  // The weight version at the start of the step. Tokens that older weights sampled are not
  // compared, only measured (OffPolicyTokenStats).
  int64_t step_version = 0;
  // `step` and `seed` key the random choices of a loss.
  int64_t step = 0;
  uint64_t seed = 1;
  // The old log-probs are Sample::old_log_probs, not the log-probs recorded with the tokens.
  bool recomputed_old_log_probs = false;
};

struct MiniBatchReport {
  // Named as in verl, over all ranks; rollout_corr/* on rank 0 only.
  std::map<std::string, double> metrics;
  LogProbComparison comparison;  // this rank's tokens
  int64_t micro_batches = 0;     // the largest number over all ranks
  int64_t tokens = 0;            // rows of this rank; a shared prompt's count once
  bool recompute = false;        // whether backward recomputed the layers' forward pass
  double forward_seconds = 0;
  double backward_seconds = 0;
};

// The objects that a pass uses; all of them outlive the call.
struct PassParts {
  LayerLoop* loop = nullptr;
  LayerSource* weights = nullptr;
  GradientAccumulator* gradients = nullptr;  // null for scoring
  Communicator* communicator = nullptr;
};

// Collective. Adds to the shard's gradients, which must be mapped, after
// GradientAccumulator::Begin.
// Passes: a loss that selects tokens runs one more forward pass first, unless all its tokens are
// fresh (IsFresh).
// Comparison: a rollout applies no dropout, so with dropout the comparison with the rollout and the
// check of ratios use log-probs without it. These are the recomputed ones if first_update and
// recomputed_old_log_probs are set; else one more forward pass computes them, unless nothing is
// compared or log_probs_compared says that a pass without dropout did it.
// `differing`, if not null, receives the pass's log-probs of this rank's samples when one of them
// fails its check, also when the call fails because of that: a ratio is not 1, or a log-prob
// differs from the rollout's although request.tolerate_mismatch is false.
// Errors: InvalidArgument: a sample that cannot be trained on. DataLoss: a fresh token's ratio is
// not 1. Aborted: another rank failed.
absl::StatusOr<MiniBatchReport> TrainMiniBatch(const PassParts& parts,
                                               const PassOptions& options,
                                               const MiniBatchRequest& request,
                                               const std::vector<Sample>& samples,
                                               LogProbsBySample* differing = nullptr);

// Collective. Returns the log-probs of every trained token under the weights of `parts`. `extras`
// receives what `request` asks for, and may be null if that is nothing.
// InvalidArgument: a sample to compare has not one log-prob and one version per response token.
absl::StatusOr<LogProbsBySample> ScoreSamples(const PassParts& parts,
                                              const PassOptions& options,
                                              const std::vector<Sample>& samples,
                                              const ScoreRequest& request = ScoreRequest(),
                                              ScoreExtras* extras = nullptr);

}  // namespace tandem
