// A hint for runs whose generation waits for its last samples: docs/partial.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/store/records.h"

namespace tandem {

// The share of empty slots from which on the tail is told of.
inline constexpr double kNotableTail = 0.2;

// The share of the seconds of generation from which on a predicted saving is told of.
inline constexpr double kNotableSaving = 0.05;

// "the tail of generation left 40 % of the slots empty; of 40.0 s of generation
// rollout.partial.max_tokens_per_round=51 would have saved 13.0 s (33 %), and 26 would have saved
// 10.0 s (25 %), as predicted from its lengths (docs/partial.md: when it pays)": the caps of a half
// and of a quarter of `max_response_tokens`, over all steps that predict something (those without
// partial rollout); where neither saves kNotableSaving, that none would. `max_response_tokens` 0
// (not known): by algorithm.partial_rollout_max_split. Empty where the mean share of the steps that
// have one is below kNotableTail.
std::string TailText(const std::vector<StepRecord>& steps, int64_t max_response_tokens);

}  // namespace tandem
