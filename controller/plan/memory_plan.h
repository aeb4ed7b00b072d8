// The memory that a trainer and a rollout need in each phase of a step, on the device that they
// share or each on its own, computed before the run from the model's config.json and the
// configuration alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/memory/worker_memory.h"
#include "common/model_spec/model_spec.h"
#include "common/types/batch_limits.h"
#include "common/types/ledger_snapshot.h"
#include "common/types/topology.h"

namespace tandem {

struct MemoryPlanInput {
  int64_t device_bytes = 0;    // of one device
  bool host_is_device = true;  // a CPU, whose device memory is host memory; else a GPU
  bool apart = false;          // trainer and rollout have a device each (Topology)
  ThreadsByRole threads;       // of CPU workers; each thread has its own scratch memory
  // Rollout
  int64_t max_num_seqs = 1;
  int64_t max_model_len = 1;        // tokens
  int64_t batched_tokens = 1;       // rollout.max_num_batched_tokens
  double memory_utilization = 0.5;  // of the device, for weights and KV while generating
  bool filtered = false;            // top-k or top-p sampling
  std::string free_cache_engine = "auto";
  int sleep_level = 1;
  ModelAdapters adapters;      // in addition to the model's weights, in both workers
  bool adapters_drop = false;  // LoRA dropout is applied in training
  // Trainer. PlanMemory sets gather.kept_bytes and gpu from the device and its utilization.
  TrainerMemoryOptions trainer;
  BatchLimits train_limits, score_limits, probe_limits;
  Recompute recompute = Recompute::kAuto;
  bool old_log_probs = false;    // computed in a separate pass
  bool compare = false;          // log-probs are compared with the rollout's in a separate pass
  bool compares_next = false;    // of the next batch, within the training of this one
  bool probe = false;            // weights are verified and a probe is scored in every step
  bool check = false;            // rollouts' weights may be compared with the trainers'
  bool export_model = false;     // checkpoints hold the HF model
  int64_t slot_bytes = 4 << 20;  // weight_sync.bucket_mb
  int64_t slots = 2;             // 0: the rollout reads the trainer's shard directly
  bool rollout_slots = false;    // the rollout may need as many of its own, filled over TCP
};

// The tag of memory held by a GPU's driver and NCCL: an estimate that no ledger contains.
inline constexpr char kDriverTag[] = "driver";

// Memory of one worker, by the tags of its ledger.
struct MemoryLine {
  bool trainer = false;
  std::string tag;
  Location location = Location::kDevice;
  int64_t bytes = 0;
  std::string part;  // "head" of workspace, for example; empty: the tag has no parts
};

// The peak of a phase from the second step on, because the first allocates the optimizer's state.
struct PlannedPhase {
  std::string phase;
  std::vector<MemoryLine> lines;
};

struct MemoryPlan {
  int64_t device_bytes = 0;
  bool host_is_device = true;
  bool apart = false;                // trainer and rollout have such a device each
  std::vector<PlannedPhase> phases;  // in the order of a step
  // Index of the phase with the highest peak; of equal ones, a phase that uses the memory.
  size_t peak = 0;
  int sleep_level = 0;     // of the rollout while its trainer trains; 0: it keeps all memory
  bool recompute = false;  // layers repeat their forward pass in backward
  // Whether the trainer releases memory that only training needs before the sync.
  bool tight = false;
  std::string problem;  // why no KV pool is possible; empty: one is
  // The lowest rollout.gpu_memory_utilization with room for a KV pool; above 1: the device has
  // none.
  double least_utilization = 0;

  // The bytes that count against the device.
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
  // The bytes on the device that both share, or on the fuller one of two.
  int64_t DeviceBytes(const PlannedPhase& phase) const {
    return apart ? std::max(Bytes(phase, true), Bytes(phase, false)) : Bytes(phase);
  }
  // The bytes that the ledgers of both workers, or of one, should report: all except the driver's.
  int64_t LedgerBytes(const PlannedPhase& phase) const {
    return LedgerBytes(phase, true) + LedgerBytes(phase, false);
  }
  // As DeviceBytes, without the driver's.
  int64_t LedgerDeviceBytes(const PlannedPhase& phase) const {
    return apart ? std::max(LedgerBytes(phase, true), LedgerBytes(phase, false))
                 : LedgerBytes(phase);
  }
  int64_t LedgerBytes(const PlannedPhase& phase, bool trainer) const {
    int64_t bytes = 0;
    for (const MemoryLine& line : phase.lines) {
      bytes += line.trainer == trainer && line.tag != kDriverTag ? Bytes(line) : 0;
    }
    return bytes;
  }
  int64_t peak_bytes() const { return phases.empty() ? 0 : DeviceBytes(phases[peak]); }
  bool fits() const { return problem.empty() && peak_bytes() <= device_bytes; }
  // Null if the plan has no such phase.
  const PlannedPhase* Find(const std::string& phase) const {
    for (const PlannedPhase& planned : phases) {
      if (planned.phase == phase) return &planned;
    }
    return nullptr;
  }
};

// Plans for rank 0, which has the largest shard, and for the largest batches that the limits allow,
// so that the ledgers stay below the plan. `auto` keys are decided as the workers
// decide them.
MemoryPlan PlanMemory(const ModelSpec& spec, const MemoryPlanInput& input);

// A change of the configuration for a plan that does not fit (plan_advice.h).
struct PlanAdvice {
  std::string setting;  // "rollout.sleep_level=2"
  // Reduction of the peak by this change alone; may be negative if it makes room for a KV pool.
  int64_t saved_bytes = 0;
  bool pool = false;    // makes room for a KV pool that had none
  bool enough = false;  // the plan fits with it
};

struct PlanAdvices {
  // Changes that lower the peak or make room for a KV pool, each applied alone to the
  // configuration. Sorted: changes that make room for a pool first, then by saved bytes, more
  // devices last.
  std::vector<PlanAdvice> alone;
  // Set if no single change is enough: changes that fit when applied one after the other, the most
  // useful first; empty if all of them together are not enough.
  std::vector<PlanAdvice> together;
  int64_t least_bytes = 0;  // peak with all of `together`, or with all helpful changes
  bool pool = false;        // there is room for a KV pool then
};

// The plan as one line of JSON, for the run's store and for programs: an object with device_bytes,
// host_is_device, apart, fits, peak_phase, peak_bytes, sleep_level, recompute, tight, problem, and
// phases with their lines (role, tag, location, bytes, part).
std::string MemoryPlanToJson(const MemoryPlan& plan);
// InvalidArgument: `text` was not written by MemoryPlanToJson.
absl::StatusOr<MemoryPlan> MemoryPlanFromJson(const std::string& text);

}  // namespace tandem
