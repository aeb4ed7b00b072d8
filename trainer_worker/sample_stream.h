// The source of a trainer's samples and the destination of its log-probs: the controller
// (grpc_sample_stream.h) or a test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/types/sample.h"
#include "trainer_worker/forward_backward/mini_batch.h"

namespace tandem {

// Not thread-safe: called by the engine thread. Calls block, with deadlines.
class SampleStream {
 public:
  virtual ~SampleStream() = default;
  // Returns this rank's samples of a mini-batch; -1: of the complete step. NotFound: there is no
  // such batch.
  virtual absl::StatusOr<std::vector<Sample>> Pull(int64_t step, int64_t mini_batch) = 0;
  // Returns the probe samples of this rank's rollout. NotFound: the probe is of another step.
  virtual absl::StatusOr<std::vector<Sample>> PullProbe(int64_t step) = 0;
  // Sends values of one kind. `policy` is "current", "reference" or "probe" for log-probs under
  // that policy; "sum_pi_squared" for sums of squared probabilities under the current policy;
  // "training" for the log-probs of a training pass that failed its checks.
  virtual absl::Status PutLogProbs(int64_t step,
                                   const std::string& policy,
                                   const LogProbsBySample& log_probs) = 0;
};

}  // namespace tandem
