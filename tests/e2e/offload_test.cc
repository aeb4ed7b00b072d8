// Masters, moments and the reference in files: real processes, the same weights.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

const std::map<std::string, std::string> kOffload = {
    {"actor.fsdp_config.param_offload", "true"}, {"actor.fsdp_config.optimizer_offload", "true"}};

TEST_CASE("a run with offloaded masters and moments ends with the same weights") {
  const Outcome outcome = RunUndisturbed({.config = kOffload});
  REQUIRE(outcome.metrics == Undisturbed().metrics);
  REQUIRE(outcome.weights == Undisturbed().weights);
}

TEST_CASE("an offloaded reference gives the same KL terms and weights") {
  std::map<std::string, std::string> config = {{"actor.use_kl_loss", "true"},
                                               {"actor.kl_loss_coef", "0.5"}};
  const Outcome resident = RunUndisturbed({.config = config});
  config["ref.offload"] = "true";
  config["rollout.free_cache_engine"] = "true";
  config["rollout.sleep_level"] = "2";
  const Outcome offloaded = RunUndisturbed({.config = config});
  REQUIRE(offloaded.metrics == resident.metrics);
  REQUIRE(offloaded.weights == resident.weights);
}

TEST_CASE("a trainer with offloaded state that is killed comes back to the same weights") {
  RequireRecovery({"trainer", 1, "optimize", 2}, kOffload);
}

}  // namespace
}  // namespace tandem::testing
