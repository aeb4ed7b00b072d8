// The states of a rollout worker and their legal transitions; docs/explanation/weights.md has the
// same table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

enum class RolloutState {
  kEmpty,     // no complete weights
  kServing,   // generates with exactly one weight version
  kDraining,  // no request is admitted; running requests finish
  kAsleep,    // closed until woken; may have released memory
  kUpdating,  // a weight update is open
};
std::string RolloutStateName(RolloutState state);  // "Empty", ...

enum class RolloutEvent {
  kGenerate,  // a request asks to run
  kLoad,      // weights have been read from a checkpoint
  kDrain,     // admission closes and running requests finish
  kSleep,     // no request is running; memory has been released
  kWake,      // some or all memory has been mapped again
  kBegin,     // a weight update opens
  kApply,     // a bucket of the update is applied
  kCommit,    // every digest matches
  kAbort,     // the update ends without a new version
};
std::string RolloutEventName(RolloutEvent event);  // "Generate", ...

// The worker's resources when the event is handled; for Sleep and Wake: afterwards.
struct RolloutResources {
  bool weights_mapped = false;
  // A complete version is in the weights region or in host memory.
  bool weights_complete = false;
  bool kv_mapped = false;
};

// Returns the state after the event. FailedPrecondition names the state, the event, the states in
// which the event is legal, and the missing resource. A pure function.
absl::StatusOr<RolloutState> NextState(RolloutState state,
                                       RolloutEvent event,
                                       const RolloutResources& resources);

// The current state and the worker's resources. RolloutMemory and WeightUpdates share one object:
// RolloutMemory reports which memory is mapped, WeightUpdates whether the weights are complete,
// each after every call that may have changed it. Not thread-safe: used by the engine thread.
class RolloutStates {
 public:
  RolloutState state() const { return state_; }
  const RolloutResources& resources() const { return resources_; }
  void set_mapped(bool weights, bool kv_cache);
  void set_weights_complete(bool complete) { resources_.weights_complete = complete; }
  // The generation of the newest group of trainers that the rollout was told of; 0: none.
  int64_t newest_group() const { return newest_group_; }
  // Any later one becomes the newest.
  void KnowGroup(int64_t generation) { newest_group_ = std::max(newest_group_, generation); }

  // Whether the event is legal now, or would be with other resources. Does not change the state.
  absl::Status Check(RolloutEvent event) const { return Check(event, resources_); }
  absl::Status Check(RolloutEvent event, const RolloutResources& resources) const;
  // Leaves the state unchanged on failure.
  absl::Status Handle(RolloutEvent event);

  // Changes Serving to Draining, so that no more requests are admitted.
  void CloseAdmission();
  // Called after a failed call that had closed admission: admits requests again if weights and
  // memory allow it. Returns `failure`.
  absl::Status ReopenAdmission(const absl::Status& failure);

 private:
  RolloutState state_ = RolloutState::kEmpty;
  RolloutResources resources_;
  int64_t newest_group_ = 0;
};

}  // namespace tandem
