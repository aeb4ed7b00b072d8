// A hint for runs whose generation waits for its last samples: docs/partial.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/records.h"

namespace tandem {

// The share of empty slots from which on the tail is told of.
inline constexpr double kNotableTail = 0.2;

// "the tail of generation left 41 % of the slots empty; rollout.partial.max_tokens_per_round=64
// would save about 12.3 s of 40.1 s, as predicted from its lengths": of the cap of a half or a
// quarter of `max_response_tokens` that saves more over all steps; where neither does, that no cap
// would. `max_response_tokens` 0 (not known): by algorithm.partial_rollout_max_split. Empty where
// the mean share of the steps that have one is below kNotableTail.
std::string TailText(const std::vector<StepRecord>& steps, int64_t max_response_tokens);

}  // namespace tandem
