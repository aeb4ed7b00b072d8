// Describes the effect of partial rollout (docs/guides/partial_rollout.md). Pure functions of the
// records; steps without partial rollout are skipped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/report/run_figures.h"
#include "controller/store/run_store.h"

namespace tandem {

bool HasPartial(const StepRecord& step);

// "2 rounds + 1 beside training, 5 groups carried (17 samples), 3.1 % of the samples of several
// versions (span 1), 1234 tokens prefilled again"; except for the rounds, zeros are omitted. Empty
// without partial rollout.
std::string PartialStepText(const StepRecord& step);

// A row of headings and one row per step: rounds, carried groups and samples, samples of several
// versions, tokens of older weights, samples interrupted, tokens prefilled again, empty slots.
// Empty if no step had partial rollout.
std::vector<std::vector<std::string>> PartialRows(const std::vector<StepRecord>& steps);

// A summary of all steps, in one or two lines without a final line end: totals, shares, mean
// staleness, carried groups at the end, and the share of slots that the tail left empty, compared
// with steps before partial rollout was on if the run has any. Empty if no step had partial
// rollout.
std::string PartialText(const RunFigures& figures);

// The share of empty slots from which TailText reports the tail.
inline constexpr double kNotableTail = 0.2;

// The share of generation seconds from which TailText reports a predicted saving.
inline constexpr double kNotableSaving = 0.05;

// A hint for runs whose generation waits for its last samples:
// "the tail of generation left 40 % of the slots empty; of 40.0 s of generation
// rollout.partial.max_tokens_per_round=51 would have saved 13.0 s (33 %), and 26 would have saved
// 10.0 s (25 %), as predicted from its lengths (docs/guides/partial_rollout.md: when it pays)".
// The caps are a half and a quarter of `max_response_tokens`, and the sums are over all steps with
// predictions (those without partial rollout). If neither saves kNotableSaving, the text says that
// no cap would. `max_response_tokens` 0 (unknown): the hint names
// algorithm.partial_rollout_max_split instead. Empty if the mean share of the steps that have one
// is below kNotableTail.
std::string TailText(const RunFigures& figures, int64_t max_response_tokens);

}  // namespace tandem
