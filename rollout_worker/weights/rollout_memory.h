// Sleep and wake: which of the rollout's memory (weights, KV cache, activations) is mapped.
// docs/explanation/weights.md lists the legal orders; any other fails with FAILED_PRECONDITION and
// changes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "rollout_worker/generation/kv_cache.h"
#include "rollout_worker/generation/model_runner.h"
#include "rollout_worker/weights/rollout_state.h"
#include "rollout_worker/weights/weight_storage.h"
#include "rollout_worker/weights/weight_updates.h"

namespace tandem {

// Which memory to release.
struct SleepOrder {
  int level = 1;                  // 1: KV dropped, weights to host memory; 2: both dropped
  std::vector<std::string> tags;  // instead of a level: "weights" and/or "kv_cache", dropped
  bool drain_only = false;        // close admission until Wake, release no memory
  bool abort_running = false;     // abort running requests instead of waiting for them
};
// InvalidArgument: unknown level or tag.
absl::Status CheckSleepOrder(const SleepOrder& order);

// Not thread-safe: used by the engine thread. The objects passed in must outlive it.
class RolloutMemory {
 public:
  RolloutMemory(RolloutStates* states,
                WeightStorage* weights,
                KvCache* kv,
                ModelRunner* runner,
                WeightUpdates* updates);

  // Maps all memory; the weights are undefined. A worker that starts without memory maps it by
  // Wake.
  absl::Status MapAll() { return Map(true, true); }
  // Sleep and Wake require closed admission and no running request. Both return the bytes of device
  // memory that they released or mapped. InvalidArgument: an unknown level or tag. Internal: the
  // system still holds pages of the released memory.
  absl::StatusOr<int64_t> Sleep(const SleepOrder& order);
  absl::StatusOr<int64_t> Wake(const std::vector<std::string>& tags);

  const WeightStorage& weights() const { return *weights_; }
  const KvCache& kv() const { return *kv_; }

 private:
  int64_t DeviceBytes() const;
  absl::Status CheckReleased() const;
  absl::StatusOr<int64_t> ReleaseMemory(const SleepOrder& order);
  absl::Status Map(bool weights, bool kv);

  RolloutStates* const states_;
  WeightStorage* const weights_;
  KvCache* const kv_;
  ModelRunner* const runner_;
  WeightUpdates* const updates_;
};

}  // namespace tandem
