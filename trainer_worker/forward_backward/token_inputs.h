// The loss's inputs from a sample, apart from the trainer's own log-probs.
#pragma once

#include <cstddef>
#include <vector>

#include "common/types/sample.h"
#include "trainer_worker/forward_backward/mini_batch.h"

namespace tandem {

// Log-probs under the policy that sampled, one per response token.
inline const std::vector<float>& OldLogProbs(const Sample& sample,
                                             const MiniBatchRequest& request) {
  return request.recomputed_old_log_probs ? sample.old_log_probs : sample.log_probs;
}

// Whether the old log-prob is of the policy that is being trained, before its first update.
inline bool IsFresh(const Sample& sample, size_t response, const MiniBatchRequest& request) {
  return request.first_update &&
         (request.recomputed_old_log_probs || sample.versions[response] == request.version);
}

// Whether the token was sampled by weights older than those at the start of the step. Its log-prob
// is then of weights that the step does not train, and its ratio need not be 1.
inline bool IsStale(const Sample& sample, size_t response, const MiniBatchRequest& request) {
  return response < sample.versions.size() && sample.versions[response] < request.step_version;
}

inline bool IsCounted(const Sample& sample, size_t response) {
  return sample.mask.empty() || sample.mask[response] != 0;
}

}  // namespace tandem
