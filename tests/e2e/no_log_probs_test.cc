// Rollouts that return no log-probs: the trainers compute the old ones, nothing is compared, and
// the log says so.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

Outcome RunOnce(const std::string& calculate, std::string* log) {
  ClusterRig rig({.config = {{"rollout.calculate_log_probs", calculate},
                             {"actor.old_log_prob", "recompute"}}});
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(code == 0);
  REQUIRE(rig.LeftBehind() == "");
  *log = rig.Log("controller");
  return OutcomeOf(rig, 3);
}

TEST_CASE("rollout.calculate_log_probs=false trains alike and says what it does not check") {
  const std::string said = "rollout.calculate_log_probs is false";
  std::string log;
  const Outcome with = RunOnce("true", &log);
  REQUIRE(log.find(said) == std::string::npos);
  const Outcome without = RunOnce("false", &log);
  REQUIRE(log.find(said) != std::string::npos);
  REQUIRE(without.weights == with.weights);
  REQUIRE(with.metrics.at(1).contains("training/rollout_log_probs_identical"));
  REQUIRE_FALSE(without.metrics.at(1).contains("training/rollout_log_probs_identical"));
}

}  // namespace
}  // namespace tandem::testing
