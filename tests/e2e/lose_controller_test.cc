// The controller dies: it is restarted, the workers register again, the run resumes.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

TEST_CASE("a controller killed while rollouts generate") {
  RequireRecovery({"controller", 0, "generate", 2});
}

TEST_CASE("a controller killed while trainers train") {
  RequireRecovery({"controller", 0, "train", 2});
}

TEST_CASE("a controller killed before a sync") { RequireRecovery({"controller", 0, "sync", 2}); }

TEST_CASE("a controller killed before a checkpoint is complete") {
  RequireRecovery({"controller", 0, "checkpoint", 2});
}

TEST_CASE("a controller killed before it records the step") {
  RequireRecovery({"controller", 0, "record", 2});
}

}  // namespace
}  // namespace tandem::testing
