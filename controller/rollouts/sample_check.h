// Checks that a sample that a rollout sends answers the request.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "common/types/sample.h"
#include "controller/workers/rollout_client.h"

namespace tandem {

// OK if `sample`, whose id is one of the request's, can be an answer to `request`: its group, its
// prompt, a finish reason, no more than max_tokens response tokens, ids of response tokens from 0
// to `vocab_limit` - 1, and for each response token a version and either a finite log-prob or,
// where the request does not ask for log-probs, none. Tokens that continue nothing must be of the
// request's weight version; those of a continuation at most of that version, as the caller
// compares the continued part itself. DataLoss names the first thing that does not fit: a wrong
// group would be scored against another prompt's answer, a wrong version trained on as if it were
// on policy.
absl::Status CheckAnswer(const GroupRequest& request, const Sample& sample, int64_t vocab_limit);

}  // namespace tandem
