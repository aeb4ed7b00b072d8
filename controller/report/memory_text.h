// Memory plans and ledgers of a trainer and a rollout for a terminal: tables, and bars whose
// letters are tags.
#pragma once

#include <algorithm>
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

// A trainer and a rollout whose memory is shown, by their ranks: those of one device, or, apart,
// one of each role with a device each.
struct ShownWorkers {
  int trainer = 0;
  int rollout = 0;
  bool apart = false;

  std::string Text() const;  // "pair 1", "trainer 0 and rollout 2"
};
// The ones with the highest peaks of the step: the pair, or the worker of each role.
ShownWorkers HeaviestWorkers(const std::vector<PhaseTime>& phases, bool apart);

// The ledger entries of both in one phase, in the form of a planned phase: peaks, and 0 for an
// entry that does not count against the device, as in the plan's bars.
std::vector<MemoryLine> MeasuredLines(const PhaseTime& phase, const ShownWorkers& workers);
// The ledgers of both in a phase; zeros for a worker that has not reported.
struct PairMemory {
  LedgerSnapshot trainer, rollout;
  bool apart = false;
  // Of the device that they share, or of the fuller one of two. Peaks can be added, because the two
  // take turns on a device.
  int64_t peak_bytes() const {
    const int64_t a = trainer.peak_on_device(), b = rollout.peak_on_device();
    return apart ? std::max(a, b) : a + b;
  }
};
PairMemory PairOf(const PhaseTime& phase, const ShownWorkers& workers);
// A line for each device with the figures of its GPU driver, in addition to the ledgers; empty on a
// host.
std::string DriverLines(const PairMemory& pair);
// The heading of the column for the bytes of the shared, or of the fuller device.
const char* DeviceHeading(bool apart);

// A bar of `width` characters for `full` bytes. Small letters are the trainer's tags, capitals the
// rollout's; TagLetters explains them.
std::string MemoryBar(const std::vector<MemoryLine>& lines, int64_t full, size_t width);
// The same; apart, a bar for each of the two devices, each of half the width.
std::string DeviceBars(const std::vector<MemoryLine>& lines,
                       int64_t full,
                       size_t width,
                       bool apart);
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
