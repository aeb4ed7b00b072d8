#include "rollout_worker/weights/rollout_state.h"

#include "common/base/status.h"

namespace tandem {
namespace {

using State = RolloutState;
using Event = RolloutEvent;

// Which states an event is legal in, where it leads, and what to do elsewhere. One row of the table
// in docs/explanation/weights.md.
struct Rule {
  const char* from;
  const char* to;
  const char* remedy;
};

Rule RuleOf(Event event) {
  switch (event) {
    case Event::kGenerate:
      return {"Serving", "Serving", "finish the weight update and wake weights and kv_cache"};
    case Event::kLoad:
      return {"Empty", "Serving or Asleep", "a worker that has weights is updated by its trainer"};
    case Event::kDrain:
      return {"Empty, Serving, Draining or Asleep", "Draining", "commit or abort the update first"};
    case Event::kSleep:
      return {"Empty, Draining or Asleep", "Asleep", "drain it, or end the update, first"};
    case Event::kWake:
      return {"Empty, Serving, Draining or Asleep", "Serving", "commit or abort the update first"};
    case Event::kBegin:
      return {"Empty, Draining or Asleep", "Updating", "drain it, or end the open update, first"};
    case Event::kApply:
      return {"Updating", "Updating", "begin an update first"};
    case Event::kCommit:
      return {"Updating", "Serving or Asleep", "begin an update first"};
    case Event::kAbort:
      return {"every state", "Serving, Asleep or Empty", ""};
  }
  return {"", "", ""};
}

absl::Status Illegal(State state, Event event) {
  const Rule rule = RuleOf(event);
  return FailedPrecondition("{} leads from {} to {}, but the rollout is {}: {}",
                            RolloutEventName(event), rule.from, rule.to, RolloutStateName(state),
                            rule.remedy);
}

absl::Status Lacking(State state, Event event, const std::string& what) {
  return FailedPrecondition("{} leads to {}, but the rollout, which is {}, {}",
                            RolloutEventName(event), RuleOf(event).to, RolloutStateName(state),
                            what);
}

// Where a worker rests that has complete weights.
State WithWeights(const RolloutFacts& facts) {
  return facts.kv_mapped ? State::kServing : State::kAsleep;
}

absl::StatusOr<State> Sleep(State state, const RolloutFacts& facts) {
  if (state != State::kDraining && state != State::kAsleep && state != State::kEmpty) {
    return Illegal(state, Event::kSleep);
  }
  if (facts.running) return Lacking(state, Event::kSleep, "still runs requests: drain it first");
  return state == State::kEmpty ? State::kEmpty : State::kAsleep;
}

absl::StatusOr<State> Wake(State state, const RolloutFacts& facts) {
  if (state == State::kUpdating) return Illegal(state, Event::kWake);
  if (state == State::kEmpty || state == State::kServing) return state;
  if (!facts.weights_mapped || !facts.kv_mapped) return State::kAsleep;
  return facts.weights_whole ? State::kServing : State::kEmpty;
}

absl::StatusOr<State> Begin(State state, const RolloutFacts& facts) {
  if (state == State::kServing || state == State::kUpdating) return Illegal(state, Event::kBegin);
  if (facts.running) return Lacking(state, Event::kBegin, "still runs requests: drain it first");
  if (!facts.weights_mapped) {
    return Lacking(state, Event::kBegin, "has given its weights' memory back: wake weights first");
  }
  return State::kUpdating;
}

absl::StatusOr<State> Load(State state, const RolloutFacts& facts) {
  if (state != State::kEmpty) return Illegal(state, Event::kLoad);
  if (!facts.weights_whole || !facts.weights_mapped) {
    return Lacking(state, Event::kLoad, "has no complete weights");
  }
  return WithWeights(facts);
}

absl::StatusOr<State> Commit(State state, const RolloutFacts& facts) {
  if (state != State::kUpdating) return Illegal(state, Event::kCommit);
  return WithWeights(facts);
}

State Abort(State state, const RolloutFacts& facts) {
  if (state != State::kUpdating) return state;
  if (facts.applied || !facts.weights_whole) return State::kEmpty;
  return WithWeights(facts);
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

absl::StatusOr<RolloutState> NextState(RolloutState state, RolloutEvent event, RolloutFacts facts) {
  switch (event) {
    case Event::kGenerate:
      if (state != State::kServing) return Illegal(state, event);
      return state;
    case Event::kLoad:
      return Load(state, facts);
    case Event::kDrain:
      if (state == State::kUpdating) return Illegal(state, event);
      return state == State::kServing ? State::kDraining : state;
    case Event::kSleep:
      return Sleep(state, facts);
    case Event::kWake:
      return Wake(state, facts);
    case Event::kBegin:
      return Begin(state, facts);
    case Event::kApply:
      if (state != State::kUpdating) return Illegal(state, event);
      return state;
    case Event::kCommit:
      return Commit(state, facts);
    case Event::kAbort:
      return Abort(state, facts);
  }
  return Internal("unknown rollout event {}", static_cast<int>(event));
}

absl::Status RolloutStateMachine::Handle(RolloutEvent event, const RolloutFacts& facts) {
  TANDEM_ASSIGN_OR_RETURN(state_, NextState(state_, event, facts));
  return absl::OkStatus();
}

}  // namespace tandem
