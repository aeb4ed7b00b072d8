// Checks importance ratios. A token whose old log-prob was computed with the weights that are being
// trained has a ratio of exactly 1 before the first optimizer step. Any other ratio means a
// misaligned window, other weights or other arithmetic, and training on it would be wrong without
// notice.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/comm/communicator.h"
#include "trainer_worker/forward_backward/mini_batch.h"
#include "trainer_worker/forward_backward/packing.h"
#include "trainer_worker/losses/exact_sum.h"

namespace tandem {

class OnPolicyRatioCheck {
 public:
  // Adds a micro-batch's scores; `log_probs` are the trainer's.
  void Add(const PackedBatch& batch,
           const std::vector<Sample>& samples,
           const std::vector<float>& log_probs,
           const MiniBatchRequest& request);
  // DataLoss if a ratio is not 1, with sample, position and both log-probs of the five largest
  // differences.
  absl::Status status() const;

 private:
  struct Token {
    uint64_t sample_id = 0;
    int64_t position = 0;  // absolute position in the sample
    float old_log_prob = 0, log_prob = 0;
    double difference = 0;
  };
  int64_t tokens_ = 0, moved_ = 0;
  std::vector<Token> worst_;  // the largest differences, in descending order
};

// Statistics of stale tokens: tokens of partial rollouts that were sampled by weights older than
// those at the start of the step. They show how far the policy has moved from the one that sampled
// the tokens. The old log-probs are those recorded at sampling, so the ratios are not 1 and are
// measured, not checked.
//
// One object per mini-batch. The results have the same bits for every split into micro-batches and
// ranks, as the sums are exact, in double. Not thread-safe.
class OffPolicyTokenStats {
 public:
  // Adds a micro-batch's scores; `log_probs` are the trainer's. All scored tokens count, including
  // tokens that a mask excludes from the loss.
  void Add(const PackedBatch& batch,
           const std::vector<Sample>& samples,
           const std::vector<float>& log_probs,
           const MiniBatchRequest& request);
  // Collective, through communicator.host(): from now on the numbers are those of all ranks.
  absl::Status Reduce(Communicator& communicator);
  bool any() const { return part_.tokens > 0; }
  // Adds no metrics if there is no stale token. Else adds partial/stale_tokens and, if log-probs
  // were recorded with the tokens, with d = current log-prob - recorded log-prob, clamped to ±20:
  // partial/stale_ratio_{mean,min,max} of e^d, and partial/stale_kl, the mean of e^d - 1 - d (the
  // k3 estimator of KL(sampled || current); J. Schulman, Approximating KL divergence, 2020).
  void AddMetrics(std::map<std::string, double>& metrics) const;

 private:
  struct Part {
    double tokens = 0;
    double measured = 0;  // tokens with a recorded log-prob
    double least = std::numeric_limits<double>::infinity();
    double most = -std::numeric_limits<double>::infinity();
    ExactSum ratio, kl;

    void Join(Part other);
  };
  Part part_;
};

}  // namespace tandem
