// Plans and ledgers of a pair for a terminal: tables, and bars whose letters are tags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/plan/memory_plan.h"
#include "controller/store/run_store.h"

namespace tandem {

// What happened to the memory in a step, beside what was planned.
struct StepMemory {
  int64_t step = 0;
  std::string state;  // of the run or the file that it comes from, for the heading
  MemoryPlan plan;    // without phases: not known
  std::vector<PhaseTime> phases;
  std::string note;  // what is not there yet, a sentence; empty: nothing is missing
};
// What the table of a finished step lacks, or differs in from its plan.
std::string NoteOnStep(int64_t step);

// The ledger's figures of one phase and pair, like a planned phase.
std::vector<MemoryLine> MeasuredLines(const PhaseTime& phase, int rank);
// Of the two workers of a pair in a phase; zeros where a worker has not reported.
struct PairMemory {
  LedgerSnapshot trainer, rollout;
  // Of the device that they share.
  int64_t peak_bytes() const { return trainer.peak_on_device() + rollout.peak_on_device(); }
};
PairMemory PairOf(const PhaseTime& phase, int rank);
// What the driver of the pair's GPU says beside the ledgers, as a line; empty for a host.
std::string DriverLine(const PairMemory& pair);
// The pair with the highest peak of the step.
int HeaviestPair(const std::vector<PhaseTime>& phases);

// A character per share of `full` bytes: small letters are the trainer's tags, capitals the
// rollout's. TagLetters names them.
std::string MemoryBar(const std::vector<MemoryLine>& lines, int64_t full, size_t width);
std::string TagLetters(const std::vector<MemoryLine>& lines);

// Phases with bars, then peak, decisions and what lies outside the device.
std::string MemoryPlanText(const MemoryPlan& plan);
// The peak, its phase and whether it fits, on one line without an end.
std::string MemoryPlanSummary(const MemoryPlan& plan);
std::string AdviceText(const PlanAdvices& advices);
// Of that what follows the table of single changes: which fit together, or that none do.
std::string AdviceEnd(const PlanAdvices& advices);
// "saves 4 MiB" or, where a KV pool gets room, "takes 4 MiB"; what is reached by it, or nothing.
std::string SavedText(const PlanAdvice& advice);
std::string AdviceRemark(const PlanAdvice& advice);
// Per phase: seconds, peaks, share of the device, what was planned, what the system says and what
// nothing accounts for; then the tags of the phase with the highest peak.
std::string StepMemoryText(const StepMemory& memory);

}  // namespace tandem
