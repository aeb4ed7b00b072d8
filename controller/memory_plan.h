// What a pair will need of its device, worked out before the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model_spec/model_spec.h"

namespace tandem {

struct MemoryPlanInput {
  int64_t device_bytes = 0;  // of one pair
  int pairs = 1;
  int64_t max_num_seqs = 1;
  int64_t max_model_len = 1;        // tokens
  double memory_utilization = 0.5;  // of the device, for weights and KV while generating
  int64_t micro_batch_tokens = 1;   // actor.ppo_max_token_len_per_gpu
  int64_t step_tokens = 1;          // of a rank's samples, if all have their full length
  int64_t batched_tokens = 1;       // rollout.max_num_batched_tokens
  int64_t element_bytes = 2;        // of model.compute_dtype
  std::string recompute = "auto";   // model.enable_gradient_checkpointing
  bool reference = false;           // a reference policy is kept
  int64_t slot_bytes = 0;           // weight_sync.bucket_mb
  int64_t slots = 2;
};

struct MemoryPlanLine {
  std::string tag;
  int64_t bytes = 0;
};

struct MemoryPlan {
  std::vector<MemoryPlanLine> rollout;  // by the ledger's tags
  std::vector<MemoryPlanLine> trainer;
  int64_t device_bytes = 0;
  int64_t awake_peak_bytes = 0;   // training while the KV pool stays
  int64_t asleep_peak_bytes = 0;  // training after it was given back

  // A tenth of the device is left to the processes themselves.
  bool needs_sleep() const { return awake_peak_bytes > device_bytes / 10 * 9; }
  bool fits() const { return asleep_peak_bytes <= device_bytes; }
  // A table for people.
  std::string Text() const;
};

// For rank 0, whose shard is the largest, and responses of full length: what the ledgers of a pair
// stay below. `auto` recompute is taken as the trainer takes it, from what is left of the device.
MemoryPlan PlanMemory(const ModelSpec& spec, const MemoryPlanInput& input);

}  // namespace tandem
