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
  for (const auto& [step, metrics] : rig.Evaluations()) {
    outcome.evaluations[step] = Repeatable(metrics);
  }
  return outcome;
}

Outcome RunUndisturbed(const RigOptions& options) {
  ClusterRig rig(options);
  rig.SetPairs(2);
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.metrics.size() == 3);
  REQUIRE_FALSE(outcome.weights.empty());
  return outcome;
}

const Outcome& Undisturbed() {
  static const Outcome outcome = RunUndisturbed({});
  return outcome;
}

std::string RequireRecovery(const Fault& fault,
                            const RigOptions& options,
                            const Outcome& expected) {
  ClusterRig rig(options);
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
  REQUIRE(outcome.evaluations == expected.evaluations);
  REQUIRE(outcome.weights == expected.weights);
  return rig.Log("launcher") + rig.Log("controller");
}

std::string RequireRecovery(const Fault& fault, const std::map<std::string, std::string>& config) {
  return RequireRecovery(fault, RigOptions{.config = config}, Undisturbed());
}

}  // namespace tandem::testing
