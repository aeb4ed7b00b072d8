// What a run leaves behind about each step and sample. Plain structs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/types/ledger_snapshot.h"
#include "common/types/sample.h"

namespace tandem {

// The memory of one worker in one phase.
struct WorkerMemory {
  bool trainer = false;  // or the rollout
  int rank = 0;
  LedgerSnapshot ledger;  // peaks of the phase
};

struct PhaseTime {
  std::string phase;  // generate, score, sleep, reference, train, optimize, sync, wake, save, ...
  double seconds = 0;
  int64_t peak_bytes = 0;  // largest sum over the processes of one pair
  std::vector<WorkerMemory> workers;
};

struct StepRecord {
  int64_t step = 0;                       // counted from 1
  int64_t version = 0;                    // weight version after the step
  std::map<std::string, double> metrics;  // verl's names
  std::vector<PhaseTime> phases;
  std::string finished_at;  // RFC 3339, UTC
};

struct SampleRecord {
  uint64_t sample_id = 0;
  int64_t step = 0;
  int64_t group = 0;
  int64_t index = 0;
  std::string prompt;
  std::string response;
  std::string ground_truth;
  double reward = 0;
  int64_t response_tokens = 0;
  FinishReason finish_reason = FinishReason::kNone;
  int64_t weight_version = 0;  // of the first response token
  double advantage = 0;
  std::map<std::string, double> reward_terms;
  // SampleMeta::response_segments: which weights sampled how many tokens, in order.
  std::vector<Segment> segments;
  // Where the token arrays lie: SampleStore's file of the step, offset of the record.
  int64_t token_offset = 0;
};

// One pass over the validation prompts.
struct EvaluationRecord {
  int64_t step = 0;  // steps finished before it; 0: before training
  int64_t version = 0;
  int64_t prompts = 0;
  int64_t samples = 0;
  std::map<std::string, double> metrics;  // val-core/..., val/reward/mean
  double seconds = 0;
};

struct RunInfo {
  std::string run_id;
  std::string run_dir;
  std::string started_at;      // RFC 3339, UTC
  std::string build;           // BuildText of the controller, then of workers of another build
  std::string numerics_class;  // of all workers
  std::string kernel_sets;     // that computed it: "amx", or several with commas
  std::string config_yaml;     // resolved
  std::string memory_plan;     // JSON, as memory_plan.h writes it
  int64_t total_steps = 0;
  int64_t first_step = 0;        // steps already done at the start: 0 unless resumed
  double expected_val_rise = 0;  // of the held-out reward over the run; 0: nothing is expected
  int64_t max_response_tokens = 0;
};

// What holds for a run that makes `steps` of the steps that it was to make: of the rise that those
// were expected to bring, these are expected to bring their share.
inline RunInfo Shortened(RunInfo info, int64_t steps) {
  if (steps <= 0 || steps >= info.total_steps) return info;
  info.expected_val_rise *= static_cast<double>(steps) / static_cast<double>(info.total_steps);
  info.total_steps = steps;
  return info;
}

}  // namespace tandem
