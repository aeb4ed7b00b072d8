// What the loss reads of a sample's tokens besides the trainer's own log-probs.
#pragma once

#include <cstddef>
#include <vector>

#include "common/types/sample.h"
#include "trainer_worker/forward_backward/mini_batch.h"

namespace tandem {

// Of the policy that sampled, one per response token.
inline const std::vector<float>& OldLogProbs(const Sample& sample,
                                             const MiniBatchRequest& request) {
  return request.recomputed_old_log_probs ? sample.old_log_probs : sample.log_probs;
}

// Whether that is the policy that is being trained, as it is now.
inline bool IsFresh(const Sample& sample, size_t response, const MiniBatchRequest& request) {
  return request.first_update &&
         (request.recomputed_old_log_probs || sample.versions[response] == request.version);
}

// Whether weights sampled it that are older than those which the step began with: its log-prob is
// of other weights than any that the step trains, and its ratio need not be 1.
inline bool IsStale(const Sample& sample, size_t response, const MiniBatchRequest& request) {
  return response < sample.versions.size() && sample.versions[response] < request.step_version;
}

inline bool IsCounted(const Sample& sample, size_t response) {
  return sample.mask.empty() || sample.mask[response] != 0;
}

}  // namespace tandem
