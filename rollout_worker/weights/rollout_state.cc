#include "rollout_worker/weights/rollout_state.h"

#include "common/base/status.h"

namespace tandem {
namespace {

using State = RolloutState;
using Event = RolloutEvent;

// The states in which an event is legal, and the remedy in another state.
struct Rule {
  const char* from;
  const char* remedy;
};

Rule FindRule(Event event, State state) {
  switch (event) {
    case Event::kGenerate:
      return {"Serving", "finish the weight update and wake weights and kv_cache"};
    case Event::kLoad:
      return {"Empty", "a worker that has weights is updated by its trainer"};
    case Event::kDrain:
    case Event::kWake:
      return {"Empty, Serving, Draining or Asleep", "commit or abort the update first"};
    case Event::kSleep:
    case Event::kBegin:
      return {"Empty, Draining or Asleep", state == State::kServing
                                               ? "drain it first"
                                               : "commit or abort the open update first"};
    case Event::kApply:
    case Event::kCommit:
      return {"Updating", "begin an update first"};
    case Event::kAbort:
      return {"in any state", ""};
  }
  return {"", ""};
}

absl::Status Illegal(State state, Event event) {
  const Rule rule = FindRule(event, state);
  return FailedPrecondition("{} needs a rollout that is {}; this one is {}: {}",
                            RolloutEventName(event), rule.from, RolloutStateName(state),
                            rule.remedy);
}

absl::Status Lacking(State state, Event event, const std::string& what) {
  return FailedPrecondition("{} is refused: the rollout, which is {}, {}", RolloutEventName(event),
                            RolloutStateName(state), what);
}

// The state of a worker that has complete weights and no open update.
State WithWeights(const RolloutResources& resources) {
  return resources.kv_mapped ? State::kServing : State::kAsleep;
}

absl::StatusOr<State> Sleep(State state) {
  if (state != State::kDraining && state != State::kAsleep && state != State::kEmpty) {
    return Illegal(state, Event::kSleep);
  }
  return state == State::kEmpty ? State::kEmpty : State::kAsleep;
}

absl::StatusOr<State> Wake(State state, const RolloutResources& resources) {
  if (state == State::kUpdating) return Illegal(state, Event::kWake);
  if (state == State::kEmpty || state == State::kServing) return state;
  if (!resources.weights_mapped || !resources.kv_mapped) return State::kAsleep;
  return resources.weights_complete ? State::kServing : State::kEmpty;
}

absl::StatusOr<State> Begin(State state, const RolloutResources& resources) {
  if (state == State::kServing || state == State::kUpdating) return Illegal(state, Event::kBegin);
  if (!resources.weights_mapped) {
    return Lacking(state, Event::kBegin,
                   "has released the memory of its weights: wake weights first");
  }
  return State::kUpdating;
}

absl::StatusOr<State> Load(State state, const RolloutResources& resources) {
  if (state != State::kEmpty) return Illegal(state, Event::kLoad);
  if (!resources.weights_complete || !resources.weights_mapped) {
    return Lacking(state, Event::kLoad, "has no complete weights");
  }
  return WithWeights(resources);
}

absl::StatusOr<State> Commit(State state, const RolloutResources& resources) {
  if (state != State::kUpdating) return Illegal(state, Event::kCommit);
  return WithWeights(resources);
}

State Abort(State state, const RolloutResources& resources) {
  if (state != State::kUpdating) return state;
  if (!resources.weights_complete) return State::kEmpty;
  return WithWeights(resources);
}

}  // namespace

std::string RolloutStateName(RolloutState state) {
  switch (state) {
    case State::kEmpty:
      return "Empty";
    case State::kServing:
      return "Serving";
    case State::kDraining:
      return "Draining";
    case State::kAsleep:
      return "Asleep";
    case State::kUpdating:
      return "Updating";
  }
  return "unknown";
}

std::string RolloutEventName(RolloutEvent event) {
  switch (event) {
    case Event::kGenerate:
      return "Generate";
    case Event::kLoad:
      return "Load";
    case Event::kDrain:
      return "Drain";
    case Event::kSleep:
      return "Sleep";
    case Event::kWake:
      return "Wake";
    case Event::kBegin:
      return "Begin";
    case Event::kApply:
      return "Apply";
    case Event::kCommit:
      return "Commit";
    case Event::kAbort:
      return "Abort";
  }
  return "unknown";
}

absl::StatusOr<RolloutState> NextState(RolloutState state,
                                       RolloutEvent event,
                                       const RolloutResources& resources) {
  switch (event) {
    case Event::kGenerate:
      if (state != State::kServing) return Illegal(state, event);
      return state;
    case Event::kLoad:
      return Load(state, resources);
    case Event::kDrain:
      if (state == State::kUpdating) return Illegal(state, event);
      return state == State::kServing ? State::kDraining : state;
    case Event::kSleep:
      return Sleep(state);
    case Event::kWake:
      return Wake(state, resources);
    case Event::kBegin:
      return Begin(state, resources);
    case Event::kApply:
      if (state != State::kUpdating) return Illegal(state, event);
      return state;
    case Event::kCommit:
      return Commit(state, resources);
    case Event::kAbort:
      return Abort(state, resources);
  }
  return Internal("unknown rollout event {}", static_cast<int>(event));
}

void RolloutStates::set_mapped(bool weights, bool kv_cache) {
  resources_.weights_mapped = weights;
  resources_.kv_mapped = kv_cache;
}

absl::Status RolloutStates::Check(RolloutEvent event, const RolloutResources& resources) const {
  return NextState(state_, event, resources).status();
}

absl::Status RolloutStates::Handle(RolloutEvent event) {
  TANDEM_ASSIGN_OR_RETURN(state_, NextState(state_, event, resources_));
  return absl::OkStatus();
}

void RolloutStates::CloseAdmission() {
  // The event fails only while an update is open, and no request is admitted then.
  state_ = NextState(state_, RolloutEvent::kDrain, resources_).value_or(state_);
}

absl::Status RolloutStates::ReopenAdmission(const absl::Status& failure) {
  if (state_ == State::kDraining) TANDEM_RETURN_IF_ERROR(Handle(RolloutEvent::kWake));
  return failure;
}

}  // namespace tandem
