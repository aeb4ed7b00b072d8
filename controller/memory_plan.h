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
  int64_t slot_bytes = 0;           // weight_sync.bucket_mb
  int64_t slots = 2;
};

struct MemoryPlanLine {
  std::string tag;
  int64_t bytes = 0;
};

struct MemoryPlan {
  std::vector<MemoryPlanLine> rollout;  // weights, kv_cache
  std::vector<MemoryPlanLine> trainer;  // master, optimizer, ...
  int64_t device_bytes = 0;
  int64_t awake_peak_bytes = 0;   // training while the KV pool stays
  int64_t asleep_peak_bytes = 0;  // training after it was given back

  // A tenth of the device is left to the processes themselves.
  bool needs_sleep() const { return awake_peak_bytes > device_bytes / 10 * 9; }
  bool fits() const { return asleep_peak_bytes <= device_bytes; }
  // A table for people.
  std::string Text() const;
};

// For rank 0, whose shard is the largest. Activations as with recompute, the smaller case.
MemoryPlan PlanMemory(const ModelSpec& spec, const MemoryPlanInput& input);

}  // namespace tandem
