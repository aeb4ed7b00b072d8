// Tokens whose old log-probs came from the weights that are being trained have an importance ratio
// of exactly 1 before the first optimizer step. Anything else is a misaligned window, other weights
// or other arithmetic, and would be learnt from without notice.
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
  // A micro-batch's scores; `log_probs` are the trainer's.
  void Add(const PackedBatch& batch,
           const std::vector<Sample>& samples,
           const std::vector<float>& log_probs,
           const MiniBatchRequest& request);
  // DataLoss where a ratio is not 1, with the five of the largest difference: sample, position and
  // both log-probs.
  absl::Status status() const;

 private:
  struct Token {
    uint64_t sample_id = 0;
    int64_t position = 0;  // absolute, in the sample
    float old_log_prob = 0, log_prob = 0;
    double difference = 0;
  };
  int64_t tokens_ = 0, moved_ = 0;
  std::vector<Token> worst_;  // by difference, the largest first
};

// Tokens that older weights sampled than those which the step began with, as partial rollouts leave
// them: how far the policy has moved away from the one that sampled them. Their log-probs stay as
// they were sampled, so their ratios are not 1; they are measured, not judged.

// One mini-batch: whatever the split into micro-batches and ranks, the numbers have the same bits
// (sums are exact, in double). Not thread-safe.
class OffPolicyTokenStats {
 public:
  // A micro-batch's scores; `log_probs` are the trainer's. All scored tokens count, also those that
  // a mask keeps from the loss.
  void Add(const PackedBatch& batch,
           const std::vector<Sample>& samples,
           const std::vector<float>& log_probs,
           const MiniBatchRequest& request);
  // Collective, through communicator.host(): from now on the numbers are those of all ranks.
  absl::Status Reduce(Communicator& communicator);
  bool any() const { return part_.tokens > 0; }
  // Nothing without a stale token. partial/stale_tokens; where log-probs came with them, with
  // d = log-prob now - log-prob as sampled, clamped to +-20: partial/stale_ratio_{mean,min,max} of
  // e^d, and partial/stale_kl, the mean of e^d - 1 - d (the k3 estimator of KL(sampled || now);
  // J. Schulman, Approximating KL divergence, 2020).
  void AddMetrics(std::map<std::string, double>& metrics) const;

 private:
  struct Part {
    double tokens = 0;
    double measured = 0;  // with a log-prob as sampled
    double least = std::numeric_limits<double>::infinity();
    double most = -std::numeric_limits<double>::infinity();
    ExactSum ratio, kl;

    void Join(Part other);
  };
  Part part_;
};

}  // namespace tandem
