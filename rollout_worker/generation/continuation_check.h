// Whether a sample may go on from what was generated of it in earlier rounds.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "common/types/sample.h"

namespace tandem {

struct ContinuationRules {
  int64_t vocab_limit = 1;  // ids at or above are no tokens, even where the model has rows for them
  int64_t max_tokens = 1;   // of the whole response
  int64_t version = -1;     // weights that are served; -1: not known, not compared
  bool log_probs = true;    // come with the tokens that follow
};

// InvalidArgument says what does not fit and what to do: arrays of unequal lengths, log-probs where
// there are none to follow (or the other way round), an id that is no token, versions that fall or
// are above the one served, nothing left to generate, a negative limit.
absl::Status CheckContinuation(const Continuation& continuation, const ContinuationRules& rules);

}  // namespace tandem
