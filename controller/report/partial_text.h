// What partial rollout did, for people: docs/partial.md. Pure functions of the records; steps that
// were made without it are left out.
#pragma once

#include <string>
#include <vector>

#include "controller/store/records.h"

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

}  // namespace tandem
