// The states of a rollout worker and their legal edges: docs/explanation/weights.md has the same
// table.
#pragma once

#include <string>

#include <absl/status/statusor.h>

namespace tandem {

enum class RolloutState {
  kEmpty,     // no complete weights
  kServing,   // generates with exactly one weight version
  kDraining,  // the gate is closed; running requests finish
  kAsleep,    // memory given back, in part or whole
  kUpdating,  // a weight transaction is open
};
std::string RolloutStateName(RolloutState state);  // "Empty", ...

enum class RolloutEvent {
  kGenerate,  // a request asks to run
  kLoad,      // weights have been read from a checkpoint
  kDrain,     // close the gate and let running requests finish
  kSleep,     // nothing runs any more; memory has been given back
  kWake,      // memory has been taken back, some or all of it
  kBegin,     // a weight transaction opens
  kApply,     // a bucket of it is applied
  kCommit,    // every digest matches
  kAbort,     // the transaction ends without a new version
};
std::string RolloutEventName(RolloutEvent event);  // "Generate", ...

// What the worker holds when the event is handled (for Sleep and Wake: afterwards).
struct RolloutFacts {
  bool weights_mapped = false;
  bool weights_whole = false;  // a complete version is in the weights region or kept on the host
  bool kv_mapped = false;
  bool running = false;  // requests are running or waiting
  bool applied = false;  // bytes of the open transaction have been written
};

// The state that follows. FailedPrecondition names the state, the event, the states in which the
// event is legal, and what is missing. Pure function.
absl::StatusOr<RolloutState> NextState(RolloutState state, RolloutEvent event, RolloutFacts facts);

// Holds the current state. Not thread-safe.
class RolloutStateMachine {
 public:
  RolloutState state() const { return state_; }
  // Changes nothing on failure.
  absl::Status Handle(RolloutEvent event, const RolloutFacts& facts);

 private:
  RolloutState state_ = RolloutState::kEmpty;
};

}  // namespace tandem
