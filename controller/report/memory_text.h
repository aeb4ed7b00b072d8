// Memory plans and ledgers of a pair for a terminal: tables, and bars whose letters are tags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/plan/memory_plan.h"
#include "controller/store/run_store.h"

namespace tandem {

// The memory of a step, as measured and as planned.
struct StepMemory {
  int64_t step = 0;
  std::string state;  // the run or file and its state, for the heading
  MemoryPlan plan;    // without phases: unknown
  std::vector<PhaseTime> phases;
  std::string note;  // a sentence about missing data; empty: nothing is missing
};
// A note on data that a finished step lacks, or that differs from its plan.
std::string NoteOnStep(int64_t step);

// The ledger entries of one phase and pair, in the form of a planned phase: peaks, and 0 for an
// entry that does not count against the device, as in the plan's bars.
std::vector<MemoryLine> MeasuredLines(const PhaseTime& phase, int rank);
// The ledgers of a pair's workers in a phase; zeros for a worker that has not reported.
struct PairMemory {
  LedgerSnapshot trainer, rollout;
  // The sum of both workers' peaks on the device that they share.
  int64_t peak_bytes() const { return trainer.peak_on_device() + rollout.peak_on_device(); }
};
PairMemory PairOf(const PhaseTime& phase, int rank);
// A line with the figures of the pair's GPU driver, in addition to the ledgers; empty on a host.
std::string DriverLine(const PairMemory& pair);
// The pair with the highest peak of the step.
int HeaviestPair(const std::vector<PhaseTime>& phases);

// A bar of `width` characters for `full` bytes. Small letters are the trainer's tags, capitals the
// rollout's; TagLetters explains them.
std::string MemoryBar(const std::vector<MemoryLine>& lines, int64_t full, size_t width);
std::string TagLetters(const std::vector<MemoryLine>& lines);

// The phases with bars, the peak, the decisions of the plan, and memory outside the device.
std::string MemoryPlanText(const MemoryPlan& plan);
// The peak, its phase and whether it fits, in one line without a line end.
std::string MemoryPlanSummary(const MemoryPlan& plan);
std::string AdviceText(const PlanAdvices& advices);
// The part of AdviceText after the table of single changes: which changes fit together, or that
// none do.
std::string AdviceEnd(const PlanAdvices& advices);
// "saves 4 MiB" or, if a change makes room for a KV pool, "takes 4 MiB"; AdviceRemark says what it
// achieves, if anything.
std::string SavedText(const PlanAdvice& advice);
std::string AdviceRemark(const PlanAdvice& advice);
// For each phase: seconds, peaks, share of the device, planned bytes, resident memory and
// unaccounted memory; then the tags of the phase with the highest peak.
std::string StepMemoryText(const StepMemory& memory);

}  // namespace tandem
