// The lines about one step for a terminal (docs/explanation/step.md, "What the terminal shows").
// Pure functions of records: what a record lacks is left out, never shown as 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "controller/store/progress.h"
#include "controller/store/run_store.h"

namespace tandem {

// The facts of a step's lines that are not in its record.
struct StepSurroundings {
  int64_t total_steps = 0;
  std::string time_left;     // "1m20s"
  LogProbSummary log_probs;  // of the step
  StepDetails details;
  int64_t device_bytes = 0;   // of a device; 0: unknown
  int64_t planned_bytes = 0;  // the plan's peak of a device; 0: unknown
};

// "step 25/50  v25  reward 0.531 ±0.12  loss -0.0143  entropy 0.412  kl 2.1e-04  clip 0.3 %  grad
// 0.87  3.21 s  ETA 1m20s"; with a KL penalty to the reference policy "ref kl 1.2e-03" after kl.
std::string StepLine(const StepRecord& step, const StepSurroundings& around);

// The lines below it but for the samples, indented: groups and lengths, phases, memory and rates,
// log-probs and weights; with partial rollout its rounds.
std::vector<std::string> FurtherStepLines(const StepRecord& step, const StepSurroundings& around);

// The characters that a sample's prompt and response have in the lines of a step.
inline constexpr size_t kSampleTextWidth = 26;

// A line per sample, each text truncated to `width` characters (0: not), with what a terminal would
// obey as escapes: "  + reward 1  A +0.725   7 tok  "What is…" -> "The answer…"". The sign is + for
// the better one of two, - for the other, = for a single one.
std::vector<std::string> SampleLines(const StepDetails& details, size_t width);

// A table: for each phase of the step its seconds, their share, the seconds from the step's
// beginning to its end with their share, and its peak memory; and the seconds of the phase in the
// run with their share. `run`: seconds by phase of all steps so far, this one included.
std::string StepPhaseTable(const StepRecord& step, const std::map<std::string, double>& run);

}  // namespace tandem
