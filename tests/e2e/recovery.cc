#include "tests/e2e/recovery.h"

#include <catch2/catch.hpp>

namespace tandem::testing {

Outcome OutcomeOf(const ClusterRig& rig, int64_t steps) {
  Outcome outcome{.weights = rig.Weights(steps)};
  for (const auto& [step, metrics] : rig.Metrics()) {
    outcome.metrics[step] = Repeatable(metrics);
    // Measured against what this process published before: a new process knows nothing of that.
    outcome.metrics[step].erase("weights/changed_share");
  }
  return outcome;
}

const Outcome& Undisturbed() {
  static const Outcome outcome = [] {
    ClusterRig rig;
    rig.SetPairs(2);
    const int code = rig.Launch().Wait();
    INFO(rig.Log("launcher"));
    REQUIRE(code == 0);
    return OutcomeOf(rig, 3);
  }();
  return outcome;
}

void RequireRecovery(const Fault& fault, const std::map<std::string, std::string>& config) {
  const Outcome& expected = Undisturbed();
  REQUIRE_FALSE(expected.weights.empty());
  ClusterRig rig({.config = config});
  rig.SetPairs(2);
  rig.SetFault(fault.role, fault.rank, fault.point, fault.nth);
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(code == 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(rig.Log("launcher").find("restart 1 of 3") != std::string::npos);
  REQUIRE(rig.LeftBehind() == "");
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.metrics == expected.metrics);
  REQUIRE(outcome.weights == expected.weights);
}

}  // namespace tandem::testing
