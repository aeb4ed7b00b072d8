// The states of a rollout worker and their legal edges: docs/explanation/weights.md has the same
// table.
#pragma once

#include <string>

#include <absl/status/statusor.h>

namespace tandem {

enum class RolloutState {
  kEmpty,     // no complete weights
  kServing,   // generates with exactly one weight version
  kDraining,  // no request is admitted; running requests finish
  kAsleep,    // some or all memory is released
  kUpdating,  // a weight transaction is open
};
std::string RolloutStateName(RolloutState state);  // "Empty", ...

enum class RolloutEvent {
  kGenerate,  // a request asks to run
  kLoad,      // weights have been read from a checkpoint
  kDrain,     // admission closes and running requests finish
  kSleep,     // no request is running; memory has been released
  kWake,      // some or all memory has been mapped again
  kBegin,     // a weight transaction opens
  kApply,     // a bucket of the transaction is applied
  kCommit,    // every digest matches
  kAbort,     // the transaction ends without a new version
};
std::string RolloutEventName(RolloutEvent event);  // "Generate", ...

// What the worker holds when the event is handled (for Sleep and Wake: afterwards).
struct RolloutResources {
  bool weights_mapped = false;
  bool weights_complete =
      false;  // a complete version is in the weights region or parked on the host
  bool kv_mapped = false;
  bool running = false;  // requests are running or waiting
};

// The state that follows. FailedPrecondition names the state, the event, the states in which the
// event is legal, and what is missing. Pure function.
absl::StatusOr<RolloutState> NextState(RolloutState state,
                                       RolloutEvent event,
                                       const RolloutResources& resources);

// The current state and what the worker holds: RolloutMemory and WeightUpdates share one object,
// and only it asks the table. RolloutMemory reports which memory is mapped, WeightUpdates whether
// the weights are complete, each after every call that may have changed it. Not thread-safe: the
// engine thread's.
class RolloutStates {
 public:
  RolloutState state() const { return state_; }
  const RolloutResources& resources() const { return resources_; }
  void set_mapped(bool weights, bool kv_cache);
  void set_weights_complete(bool complete) { resources_.weights_complete = complete; }

  // Whether the event is legal now, or would be with other resources. Changes nothing.
  absl::Status Check(RolloutEvent event) const { return Check(event, resources_); }
  absl::Status Check(RolloutEvent event, const RolloutResources& resources) const;
  // Changes nothing on failure.
  absl::Status Handle(RolloutEvent event);

  // Serving becomes Draining: no request is admitted any more.
  void CloseAdmission();
  // After a call that failed and had closed admission: admits requests again if weights and memory
  // allow. Returns `failure`.
  absl::Status ReopenAdmission(const absl::Status& failure);

 private:
  RolloutState state_ = RolloutState::kEmpty;
  RolloutResources resources_;
};

}  // namespace tandem
