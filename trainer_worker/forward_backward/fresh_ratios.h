// Tokens whose old log-probs came from the weights that are being trained have an importance ratio
// of exactly 1 before the first optimizer step. Anything else is a misaligned window, other weights
// or other arithmetic, and would be learnt from without notice.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/status.h>

#include "trainer_worker/forward_backward/mini_batch.h"
#include "trainer_worker/forward_backward/packing.h"

namespace tandem {

class FreshRatios {
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

}  // namespace tandem
