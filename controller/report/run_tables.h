// The tables that are printed at the end of a run: reward curve, phases, evaluations. Pure
// functions of the records.
#pragma once

#include <string>
#include <vector>

#include "controller/report/run_figures.h"
#include "controller/store/run_store.h"

namespace tandem {

// The phases with their means and shares.
std::vector<PhaseTotal> TotalPhases(const RunFigures& figures);

// Table: phase, seconds per step, share, peak memory.
std::string PhaseTable(const RunFigures& figures);

// Reward over steps: a sparkline, then the first, last and best values.
std::string RewardCurve(const RunFigures& figures);

// The held-out reward of the first and the last evaluation and its rise, each with a 95 % interval
// (the rise's as if the two were independent, which is cautious, as the prompts are the same). Says
// so if the rise is within its interval, and thus not significant, or less than `expected_rise` (0:
// none is expected). Empty without evaluations.
std::string EvaluationText(const std::vector<EvaluationRecord>& evaluations, double expected_rise);

// "weights were sent again to 3 rollouts that had lost them: 1 in step 4, 2 in step 7"; empty if
// there were none.
std::string ResentText(const RunFigures& figures);

// How long it took, for after "N steps": " in 20.0 s" or, where a run was resumed after
// `first_step` and nobody counted the time before, ": the 2 since the resume took 20.0 s".
std::string TimeOfSteps(int64_t steps, int64_t first_step, double seconds);

// "2 steps were undone by recoveries and made again: 3 and 4 (generation 5)", or what of them was
// not made again; empty if there were none.
std::string UndoneText(const RunFigures& figures);

// The metric of a record; NaN if it is missing.
double MetricOf(const StepRecord& step, const std::string& name);
// The same; 0 if it is missing.
double NumberOf(const StepRecord& step, const std::string& name);
double MetricOf(const EvaluationRecord& evaluation, const std::string& name);

// One of the val-core metrics, without standard deviations.
struct CoreMetric {
  std::string source;  // data source and reward key: "openai/gsm8k reward"
  std::string metric;  // mean@8, best@8, maj@8, pass@8
  double value = 0;
};
// The val-core metrics in order of source and metric.
std::vector<CoreMetric> CoreMetrics(const EvaluationRecord& evaluation);
// "openai/gsm8k reward: best@8 0.7  mean@8 0.4" for each source. Empty if there is only one metric,
// the mean of everything: one source, one sample per prompt.
std::vector<std::string> CoreMetricLines(const EvaluationRecord& evaluation);

}  // namespace tandem
