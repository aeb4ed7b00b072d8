// What partial rollout did, for people: docs/guides/partial_rollout.md. Pure functions of the
// records; steps that were made without it are left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/store/run_store.h"

namespace tandem {

bool HasPartial(const StepRecord& step);

// "2 rounds + 1 beside training, 5 groups carried (17 samples), 3.1 % of the samples of several
// versions (span 1), 1234 tokens prefilled again"; what is 0 but for the rounds is left out. Empty
// without partial rollout.
std::string PartialStepText(const StepRecord& step);

// A row of headings and one for each step: rounds, what is carried, samples of several versions,
// tokens of older weights, what was cut and prefilled again, empty slots. Empty where no step had
// partial rollout.
std::vector<std::vector<std::string>> PartialRows(const std::vector<StepRecord>& steps);

// All steps together, in one or two lines without the last line's end: totals, shares, mean
// staleness, what is carried at the end, and the share of slots that the tail left empty beside
// that of the steps before partial rollout was on, if the run has some. Empty where no step had
// it.
std::string PartialText(const std::vector<StepRecord>& steps);

// A hint for runs whose generation waits for its last samples: docs/guides/partial_rollout.md.

// The share of empty slots from which on the tail is told of.
inline constexpr double kNotableTail = 0.2;

// The share of the seconds of generation from which on a predicted saving is told of.
inline constexpr double kNotableSaving = 0.05;

// "the tail of generation left 40 % of the slots empty; of 40.0 s of generation
// rollout.partial.max_tokens_per_round=51 would have saved 13.0 s (33 %), and 26 would have saved
// 10.0 s (25 %), as predicted from its lengths (docs/guides/partial_rollout.md: when it pays)": the
// caps of a half and of a quarter of `max_response_tokens`, over all steps that predict something
// (those without partial rollout); where neither saves kNotableSaving, that none would.
// `max_response_tokens` 0 (not known): by algorithm.partial_rollout_max_split. Empty where the mean
// share of the steps that have one is below kNotableTail.
std::string TailText(const std::vector<StepRecord>& steps, int64_t max_response_tokens);

}  // namespace tandem
