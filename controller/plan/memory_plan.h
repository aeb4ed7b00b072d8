// What a pair will need of its device in each phase of a step, worked out before the run from the
// model's config.json and the configuration alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/memory/worker_memory.h"
#include "common/model_spec/model_spec.h"
#include "common/types/batch_limits.h"
#include "common/types/ledger_snapshot.h"

namespace tandem {

struct MemoryPlanInput {
  int64_t device_bytes = 0;    // of one pair
  bool host_is_device = true;  // a CPU: host memory is the device's; else a GPU
  int64_t threads = 1;         // of a worker on a CPU: each has scratch of its own
  // Rollout.
  int64_t max_num_seqs = 1;
  int64_t max_model_len = 1;        // tokens
  int64_t batched_tokens = 1;       // rollout.max_num_batched_tokens
  double memory_utilization = 0.5;  // of the device, for weights and KV while generating
  bool filtered = false;            // top-k or top-p sampling
  std::string free_cache_engine = "auto";
  int sleep_level = 1;
  ModelAdapters adapters;      // beside the model's weights, of both workers
  bool adapters_drop = false;  // elements of their inputs, while the trainer trains
  // Trainer; gather.kept_bytes and gpu are filled in from the device and its utilization.
  TrainerMemoryOptions trainer;
  BatchLimits train_limits, score_limits, probe_limits;
  Recompute recompute = Recompute::kAuto;
  bool old_log_probs = false;    // a pass of its own computes them
  bool probe = false;            // weights are verified and a probe is scored in every step
  bool check = false;            // rollouts' weights may be compared with the trainers'
  bool export_model = false;     // checkpoints hold the HF model
  int64_t slot_bytes = 4 << 20;  // weight_sync.bucket_mb
  int64_t slots = 2;             // 0: the rollout reads the shard itself
};

// The tag of what a GPU's driver and NCCL hold: an estimate, and in no ledger.
inline constexpr char kDriverTag[] = "driver";

// Of one worker of the pair, by the ledger's tags.
struct MemoryLine {
  bool trainer = false;
  std::string tag;
  Location location = Location::kDevice;
  int64_t bytes = 0;
  std::string part;  // of the tag, where it has parts: "head" of workspace
};

// The peaks of a phase, from the second step on: the optimizer's state is made in the first.
struct PlannedPhase {
  std::string phase;
  std::vector<MemoryLine> lines;
};

struct MemoryPlan {
  int64_t device_bytes = 0;
  bool host_is_device = true;
  std::vector<PlannedPhase> phases;  // in the order of a step
  size_t peak = 0;         // index of the phase that needs the most; of several: one that needs it
  int sleep_level = 0;     // of the rollout while its trainer trains; 0: it keeps all
  bool recompute = false;  // layers run forward again in backward
  bool tight = false;      // the trainer gives back what only training needs before the sync
  std::string problem;     // why there can be no KV pool; empty: there is one
  // rollout.gpu_memory_utilization that has room for one; above 1: the device has none.
  double least_utilization = 0;

  // What counts against the device.
  int64_t Bytes(const MemoryLine& line) const {
    const bool counts =
        line.location == Location::kDevice || (host_is_device && line.location == Location::kHost);
    return counts ? line.bytes : 0;
  }
  int64_t Bytes(const PlannedPhase& phase) const {
    int64_t bytes = 0;
    for (const MemoryLine& line : phase.lines) bytes += Bytes(line);
    return bytes;
  }
  int64_t Bytes(const PlannedPhase& phase, bool trainer) const {
    int64_t bytes = 0;
    for (const MemoryLine& line : phase.lines) bytes += line.trainer == trainer ? Bytes(line) : 0;
    return bytes;
  }
  // What the ledgers of the pair, or of one of its workers, are to say: all but the driver's.
  int64_t LedgerBytes(const PlannedPhase& phase) const {
    return LedgerBytes(phase, true) + LedgerBytes(phase, false);
  }
  int64_t LedgerBytes(const PlannedPhase& phase, bool trainer) const {
    int64_t bytes = 0;
    for (const MemoryLine& line : phase.lines) {
      bytes += line.trainer == trainer && line.tag != kDriverTag ? Bytes(line) : 0;
    }
    return bytes;
  }
  int64_t peak_bytes() const { return phases.empty() ? 0 : Bytes(phases[peak]); }
  bool fits() const { return problem.empty() && peak_bytes() <= device_bytes; }
  // Null if the plan has no such phase.
  const PlannedPhase* Find(const std::string& phase) const {
    for (const PlannedPhase& planned : phases) {
      if (planned.phase == phase) return &planned;
    }
    return nullptr;
  }
};

// For rank 0, whose shard is the largest, and the largest batches that the limits allow: what the
// ledgers of the pair stay below. `auto` keys are decided as the workers decide them.
MemoryPlan PlanMemory(const ModelSpec& spec, const MemoryPlanInput& input);

// What to change where a plan does not fit (plan_advice.h).
struct PlanAdvice {
  std::string setting;  // "rollout.sleep_level=2"
  // Of the peak, this change alone; below 0 where it makes room for a pool.
  int64_t saved_bytes = 0;
  bool pool = false;    // there is room for a KV pool then, and was none
  bool enough = false;  // it fits then
};

struct PlanAdvices {
  // Those that lower the peak or make room for a pool, each on the configuration as it is: room
  // first, then what saves most, more devices last.
  std::vector<PlanAdvice> alone;
  // Where none is enough: changes that fit when taken one after the other, the most useful first;
  // empty if all together are not enough.
  std::vector<PlanAdvice> together;
  int64_t least_bytes = 0;  // peak with all of `together`, or with all that helps
  bool pool = false;        // there is room for a KV pool then
};

// A memory plan as JSON: what a run keeps of it, and what machines read.

// One object: device_bytes, fits, peak_phase, peak_bytes, sleep_level, recompute, problem, and
// phases with their lines (role, tag, location, bytes, part). On one line.
std::string MemoryPlanToJson(const MemoryPlan& plan);
// InvalidArgument: not what MemoryPlanToJson writes.
absl::StatusOr<MemoryPlan> MemoryPlanFromJson(const std::string& text);

}  // namespace tandem
