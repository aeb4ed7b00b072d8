// A rollout that is slow, and works: nobody may take it for lost.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

TEST_CASE("a rollout that takes far longer than a call may be silent is not lost") {
  // Half a second a token, 16 tokens, two waves of samples: longer than a call may be silent.
  const std::map<std::string, std::string> config = {{"cluster.rpc_timeout_seconds", "12"},
                                                     {"data.max_response_length", "16"},
                                                     {"trainer.total_training_steps", "1"}};
  ClusterRig quick({.config = config});
  REQUIRE(quick.Launch().Wait() == 0);

  ClusterRig slow({.config = config});
  slow.SetFault("rollout", 0, "generate", 1, "slow");
  const int code = slow.Launch().Wait();
  const std::string said = slow.Log("launcher") + slow.Log("controller");
  INFO(said);
  REQUIRE(code == 0);
  REQUIRE(slow.FaultFired());
  REQUIRE(said.find("is lost") == std::string::npos);
  REQUIRE(said.find("restart 1 of") == std::string::npos);
  REQUIRE(OutcomeOf(slow, 1).weights == OutcomeOf(quick, 1).weights);
}

}  // namespace
}  // namespace tandem::testing
