#include "rollout_worker/weights/rollout_state.h"

#include <array>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr std::array kStates = {RolloutState::kEmpty, RolloutState::kServing,
                                RolloutState::kDraining, RolloutState::kAsleep,
                                RolloutState::kUpdating};
constexpr std::array kEvents = {
    RolloutEvent::kGenerate, RolloutEvent::kLoad,   RolloutEvent::kDrain,
    RolloutEvent::kSleep,    RolloutEvent::kWake,   RolloutEvent::kBegin,
    RolloutEvent::kApply,    RolloutEvent::kCommit, RolloutEvent::kAbort};

RolloutResources MakeResources(int bits) {
  RolloutResources resources;
  resources.weights_mapped = bits & 1;
  resources.weights_complete = bits & 2;
  resources.kv_mapped = bits & 4;
  return resources;
}

std::vector<std::string> Cells(const std::string& line, char separator) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, separator);) {
    const size_t first = cell.find_first_not_of(' ');
    if (first == std::string::npos) continue;
    cells.push_back(cell.substr(first, cell.find_last_not_of(' ') - first + 1));
  }
  return cells;
}

// (event, state) → the states that docs/explanation/weights.md names.
std::map<std::pair<std::string, std::string>, std::set<std::string>> DocumentedTable() {
  std::ifstream in("docs/explanation/weights.md");
  std::map<std::pair<std::string, std::string>, std::set<std::string>> table;
  std::vector<std::string> header;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("| event |", 0) == 0) {
      header = Cells(line, '|');
      std::getline(in, line);
    } else if (!header.empty() && line.rfind("|", 0) == 0) {
      const std::vector<std::string> cells = Cells(line, '|');
      for (size_t i = 1; i < cells.size(); ++i) {
        std::set<std::string>& next = table[{cells[0], header[i]}];
        for (const std::string& state : Cells(cells[i], '/')) {
          if (state != "–") next.insert(state);
        }
      }
    } else if (!header.empty()) {
      break;
    }
  }
  return table;
}

RolloutState Next(RolloutState state, RolloutEvent event, RolloutResources resources) {
  const auto next = NextState(state, event, resources);
  INFO(next.status().ToString());
  REQUIRE(next.ok());
  return *next;
}

RolloutResources All() {
  RolloutResources resources;
  resources.weights_mapped = resources.weights_complete = resources.kv_mapped = true;
  return resources;
}

}  // namespace

TEST_CASE(
    "every state and event leads where docs/explanation/weights.md says, whatever the worker "
    "holds") {
  const auto table = DocumentedTable();
  REQUIRE(table.size() == kStates.size() * kEvents.size());
  for (const RolloutState state : kStates) {
    for (const RolloutEvent event : kEvents) {
      std::set<std::string> reached;
      for (int bits = 0; bits < 8; ++bits) {
        const auto next = NextState(state, event, MakeResources(bits));
        if (next.ok()) {
          reached.insert(RolloutStateName(*next));
          continue;
        }
        REQUIRE(next.status().code() == absl::StatusCode::kFailedPrecondition);
        const std::string text(next.status().message());
        INFO(text);
        REQUIRE(text.find(RolloutEventName(event)) == 0);
        REQUIRE(text.find(RolloutStateName(state)) != std::string::npos);
      }
      INFO(RolloutStateName(state) << " " << RolloutEventName(event));
      REQUIRE(reached == table.at({RolloutEventName(event), RolloutStateName(state)}));
    }
  }
}

TEST_CASE("the order sleep, wake weights, update, wake kv leads back to Serving") {
  RolloutResources resources = All();
  RolloutState state = RolloutState::kServing;
  state = Next(state, RolloutEvent::kDrain, resources);
  REQUIRE(state == RolloutState::kDraining);
  resources.kv_mapped = resources.weights_mapped = resources.weights_complete = false;
  state = Next(state, RolloutEvent::kSleep, resources);
  REQUIRE(state == RolloutState::kAsleep);
  REQUIRE(!NextState(state, RolloutEvent::kBegin, resources).ok());
  resources.weights_mapped = true;
  state = Next(state, RolloutEvent::kWake, resources);
  REQUIRE(state == RolloutState::kAsleep);
  state = Next(state, RolloutEvent::kBegin, resources);
  REQUIRE(state == RolloutState::kUpdating);
  REQUIRE(!NextState(state, RolloutEvent::kWake, All()).ok());
  REQUIRE(!NextState(state, RolloutEvent::kGenerate, resources).ok());
  state = Next(state, RolloutEvent::kApply, resources);
  resources.weights_complete = true;
  state = Next(state, RolloutEvent::kCommit, resources);
  REQUIRE(state == RolloutState::kAsleep);
  REQUIRE(!NextState(state, RolloutEvent::kGenerate, resources).ok());
  state = Next(state, RolloutEvent::kWake, All());
  REQUIRE(state == RolloutState::kServing);
}

TEST_CASE("An event that is refused names the states in which it is legal, and the remedy") {
  const auto asleep = NextState(RolloutState::kServing, RolloutEvent::kSleep, All());
  REQUIRE(asleep.status().message() ==
          "Sleep needs a rollout that is Empty, Draining or Asleep; this one is Serving: drain it "
          "first");
}

TEST_CASE("a sync without sleep goes through Draining and an abort decides by applied bytes") {
  REQUIRE(!NextState(RolloutState::kServing, RolloutEvent::kBegin, All()).ok());
  REQUIRE(Next(RolloutState::kDraining, RolloutEvent::kBegin, All()) == RolloutState::kUpdating);
  REQUIRE(Next(RolloutState::kUpdating, RolloutEvent::kAbort, All()) == RolloutState::kServing);
  RolloutResources applied = All();
  applied.weights_complete = false;
  REQUIRE(Next(RolloutState::kUpdating, RolloutEvent::kAbort, applied) == RolloutState::kEmpty);
}

TEST_CASE("the state stays after an illegal event, and admission reopens only if memory allows") {
  RolloutStates states;
  states.set_mapped(true, true);
  REQUIRE(states.state() == RolloutState::kEmpty);
  REQUIRE(!states.Handle(RolloutEvent::kCommit).ok());
  REQUIRE(!states.Handle(RolloutEvent::kLoad).ok());
  REQUIRE(states.state() == RolloutState::kEmpty);
  states.set_weights_complete(true);
  REQUIRE(states.Handle(RolloutEvent::kLoad).ok());
  REQUIRE(states.state() == RolloutState::kServing);
  const absl::Status failure = absl::InternalError("failed");
  states.CloseAdmission();
  REQUIRE(states.state() == RolloutState::kDraining);
  REQUIRE(states.ReopenAdmission(failure) == failure);
  REQUIRE(states.state() == RolloutState::kServing);
  states.CloseAdmission();
  states.set_mapped(true, false);
  REQUIRE(states.ReopenAdmission(failure) == failure);
  REQUIRE(states.state() == RolloutState::kAsleep);
}

}  // namespace tandem
