// Where a trainer's samples come from and its log-probs go: the controller (grpc_sample_stream.h)
// or a test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/types/sample.h"
#include "trainer_worker/forward_backward/mini_batch.h"

namespace tandem {

// Not thread-safe: the engine thread calls it. Blocking, with deadlines.
class SampleStream {
 public:
  virtual ~SampleStream() = default;
  // This rank's samples of a mini-batch; -1: of the whole step. NotFound: no such batch.
  virtual absl::StatusOr<std::vector<Sample>> Pull(int64_t step, int64_t mini_batch) = 0;
  // The probe samples of this rank's rollout. NotFound: other step.
  virtual absl::StatusOr<std::vector<Sample>> PullProbe(int64_t step) = 0;
  // `policy` is "current", "reference" or "probe"; "sum_pi_squared": such sums under the current
  // one; "training": a training pass's, which are not what they must be.
  virtual absl::Status PutLogProbs(int64_t step,
                                   const std::string& policy,
                                   const LogProbsBySample& log_probs) = 0;
};

}  // namespace tandem
