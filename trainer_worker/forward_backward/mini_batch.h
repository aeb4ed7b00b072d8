// One mini-batch on one rank: pack the samples, run every micro-batch forward and backward, and add
// up gradients and metrics over micro-batches and ranks.
#pragma once

#include <cstdint>
#include <map>
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

// One log-prob per response token, by sample id; 0 where the token is not trained.
using LogProbsBySample = std::unordered_map<uint64_t, std::vector<float>>;

// How one pass over samples is set up; shared by training and scoring.
struct PassOptions {
  PackingLimits limits;
  Recompute recompute = Recompute::kAuto;
  int64_t activation_budget_bytes = 0;
  double dropout = 0;  // in front of adapters, of training alone
  // That a micro-batch of the run may have, so that memory for it is held from the first on; no
  // rows: not known, memory grows with the data.
  BatchShape largest;
};

struct MiniBatchRequest {
  double global_tokens = 0;  // trained response tokens of the mini-batch, all ranks
  double global_samples = 0;
  bool compare_log_probs = false;
  PolicyLossOptions loss;
  std::string loss_agg_mode = "token-mean";
  double loss_scale_factor = 1;  // of seq-mean-token-sum-norm
  // No optimizer step was done since the old log-probs were computed, under weight version
  // `version`: tokens of that version must have an importance ratio of exactly 1.
  bool first_update = false;
  // Whoever reads the report goes on where log-probs differ: it corrects them.
  bool tolerate_mismatch = false;
  int64_t version = 0;
  // Weight version that the step began with. Tokens of older ones are compared with nothing: they
  // are measured (OffPolicyTokenStats).
  int64_t step_version = 0;
  // Key what a loss chooses at random.
  int64_t step = 0;
  uint64_t seed = 1;
  // Take Sample::old_log_probs for the sampling policy's, not those that came with the tokens.
  bool recomputed_old_log_probs = false;
};

struct MiniBatchReport {
  std::map<std::string, double> metrics;  // verl's names, of all ranks; rollout_corr/* on rank 0
  LogProbComparison comparison;           // this rank's
  int64_t micro_batches = 0;              // the largest number of any rank
  int64_t tokens = 0;                     // rows of this rank, a shared prompt's once
  bool recompute = false;                 // layers ran forward again in backward
  double forward_seconds = 0;
  double backward_seconds = 0;
};

// The parts of a pass; all outlive the call.
struct PassParts {
  LayerLoop* loop = nullptr;
  LayerSource* weights = nullptr;
  GradientAccumulator* gradients = nullptr;  // null for scoring
  Communicator* communicator = nullptr;
};

// Collective. Adds to the shard's gradients, which must be mapped, and what sums them begun
// (GradientAccumulator::Begin). A loss that selects tokens takes one more forward pass first,
// unless all its tokens are fresh. With dropout, which the rollout knows nothing of, what is
// compared with it and what must have a ratio of 1 are log-probs without: recomputed ones where the
// request is fresh and has some, else those of one more forward pass, if anything is compared.
// InvalidArgument: a sample that cannot be trained on; DataLoss: a ratio of fresh tokens is not 1;
// Aborted: another rank failed. Unless null, `differing` becomes the pass's log-probs of this
// rank's samples where one of them is not what it must be (not 1 as a ratio, or not the rollout's
// although request.tolerate_mismatch is false), also where the call fails for it.
absl::StatusOr<MiniBatchReport> TrainMiniBatch(const PassParts& parts,
                                               const PassOptions& options,
                                               const MiniBatchRequest& request,
                                               const std::vector<Sample>& samples,
                                               LogProbsBySample* differing = nullptr);

// Collective. Log-probs of every trained token under the weights of `parts`; likewise the sums of
// squared probabilities, unless null.
absl::StatusOr<LogProbsBySample> ScoreSamples(const PassParts& parts,
                                              const PassOptions& options,
                                              const std::vector<Sample>& samples,
                                              LogProbsBySample* sum_pi_squared = nullptr);

}  // namespace tandem
