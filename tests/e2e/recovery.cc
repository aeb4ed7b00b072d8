#include "tests/e2e/recovery.h"

#include <catch2/catch.hpp>

namespace tandem::testing {

Outcome OutcomeOf(const ClusterRig& rig, int64_t steps) {
  Outcome outcome{.weights = rig.Weights(steps)};
  for (const auto& [step, metrics] : rig.Metrics()) {
    outcome.metrics[step] = Repeatable(metrics);
    // Measured against what this process published before: a new process knows nothing of that.
    outcome.metrics[step].erase("weights/changed_share");
    // Tell of what was lost, and of the second life's probe.
    outcome.metrics[step].erase("weights/resent_rollouts");
    outcome.metrics[step].erase("weights/probe_tokens");
  }
  for (const auto& [step, metrics] : rig.Evaluations()) {
    outcome.evaluations[step] = Repeatable(metrics);
  }
  return outcome;
}

void RequireLearned(const Outcome& outcome, int64_t steps) {
  REQUIRE(std::ssize(outcome.metrics) == steps);
  double learned = 0;
  for (const auto& [step, metrics] : outcome.metrics) {
    REQUIRE(metrics.at("training/rollout_log_probs_identical") == 1.0);
    learned += metrics.at("actor/grad_norm").get<double>();
  }
  REQUIRE(learned > 0.0);
  REQUIRE_FALSE(outcome.weights.empty());
}

int64_t RequireIdentical(const std::string& console, int64_t steps, int64_t least) {
  constexpr char kPhrase[] = " token log-probs identical";
  int64_t comparisons = 0, tokens = 0;
  for (size_t at = console.find(kPhrase); at != std::string::npos;
       at = console.find(kPhrase, at + 1)) {
    const size_t line = console.rfind('\n', at) + 1;
    if (console.substr(line, at - line).find("probe: ") != std::string::npos) continue;
    const size_t of = console.rfind(" of ", at);
    const int64_t compared = std::stoll(console.substr(of + 4));
    const int64_t identical = std::stoll(console.substr(console.find_last_of(" \n", of - 1) + 1));
    INFO(console.substr(line, at - line));
    REQUIRE(identical == compared);
    REQUIRE(compared >= least);
    ++comparisons;
    tokens += compared;
  }
  REQUIRE(comparisons == steps);
  return tokens;
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
