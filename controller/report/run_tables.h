// What the end of a run prints: curve, phases, evaluations. Pure functions of the records.
#pragma once

#include <string>
#include <vector>

#include "controller/store/run_store.h"

namespace tandem {

// A phase over all steps.
struct PhaseTotal {
  std::string phase;
  double seconds = 0;       // sum
  double mean_seconds = 0;  // per step that had it
  double share = 0;         // of the sum over phases
  int64_t peak_bytes = 0;   // largest
};
std::vector<PhaseTotal> TotalPhases(const std::vector<StepRecord>& steps);

// Table: phase, seconds per step, share, peak memory.
std::string PhaseTable(const std::vector<StepRecord>& steps);

// Reward over steps: a sparkline, then first, last and best.
std::string RewardCurve(const std::vector<StepRecord>& steps);

// Held-out reward of the first and the last evaluation and the rise, each with its 95 % interval
// (that of the rise as if the two were independent, which is cautious: the prompts are the same).
// Says plainly when the rise is within its interval, so none, and when it is less than
// `expected_rise` (0: nothing is expected). Empty without evaluations.
std::string EvaluationText(const std::vector<EvaluationRecord>& evaluations, double expected_rise);

// "weights were sent again to 3 rollouts that had lost them: 1 in step 4, 2 in step 7"; empty where
// none were.
std::string ResentText(const std::vector<StepRecord>& steps);

// The metric of a record, NaN where it has none.
double MetricOf(const StepRecord& step, const std::string& name);
double MetricOf(const EvaluationRecord& evaluation, const std::string& name);

// One of the val-core numbers, without those of deviation.
struct CoreMetric {
  std::string source;  // data source and reward key: "openai/gsm8k reward"
  std::string metric;  // mean@8, best@8, maj@8, pass@8
  double value = 0;
};
// In order of source and metric.
std::vector<CoreMetric> CoreMetrics(const EvaluationRecord& evaluation);
// "openai/gsm8k reward: best@8 0.7  mean@8 0.4" for each source; none if that is no more than the
// mean of everything: one source, one sample for each prompt.
std::vector<std::string> CoreMetricLines(const EvaluationRecord& evaluation);

}  // namespace tandem
