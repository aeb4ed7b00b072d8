// A rollout dies: its groups are issued again, it is restarted and synced, nothing else changes.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

TEST_CASE("a rollout killed while it generates") {
  RequireRecovery({"rollout", 1, "generate", 12});
}

TEST_CASE("a rollout killed while it sleeps") {
  RequireRecovery({"rollout", 0, "asleep", 2}, {{"rollout.free_cache_engine", "true"}});
}

TEST_CASE("a rollout killed while weights arrive") {
  const std::string said = RequireRecovery({"rollout", 1, "apply bucket", 2});
  INFO(said);
  REQUIRE(said.find("rollout 1 (says trainer 1)") != std::string::npos);
  REQUIRE(said.find("waiting for rollout 1 (lost") != std::string::npos);
  REQUIRE(said.find("trainer 1 (lost") == std::string::npos);
}

TEST_CASE("a rollout killed before it commits an update") {
  RequireRecovery({"rollout", 0, "commit update", 3});
}

TEST_CASE("a rollout killed as it wakes") {
  RequireRecovery({"rollout", 1, "wake", 4}, {{"rollout.free_cache_engine", "true"}});
}

}  // namespace
}  // namespace tandem::testing
