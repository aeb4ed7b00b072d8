// Compares the trainer's log-probs with the rollout's, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

#include "common/rollout_correction/off_policy_metrics.h"
#include "common/types/sample.h"
#include "trainer_worker/forward_backward/packing.h"

namespace tandem {

// A token whose log-prob differs.
struct LogProbMismatch {
  uint64_t sample_id = 0;
  int64_t position = 0;  // absolute token position in the sample
  int64_t weight_version = 0;
  float rollout = 0;
  float trainer = 0;
};

// Sums over micro-batches.
struct LogProbComparison {
  int64_t compared = 0;
  int64_t identical = 0;
  double max_abs_difference = 0;
  double sum_abs_difference = 0;
  ProbabilityComparison probabilities;
  std::vector<LogProbMismatch> mismatches;  // the five largest differences, in descending order
};

// Adds the scored tokens of a micro-batch. `log_probs` are the trainer's. Tokens that weights
// older than `version` sampled are skipped, as their log-probs are of other weights. Every sample
// has as many log-probs and versions as response tokens (CheckLogProbs in mini_batch.cc).
void CompareLogProbs(const PackedBatch& batch,
                     const std::vector<Sample>& samples,
                     const std::vector<float>& log_probs,
                     int64_t version,
                     LogProbComparison& comparison);

}  // namespace tandem
