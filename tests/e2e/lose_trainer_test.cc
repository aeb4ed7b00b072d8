// A trainer dies: all trainers go back to the last checkpoint and the step is replayed.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

TEST_CASE("a trainer killed before the first step") { RequireRecovery({"trainer", 0, "reset", 1}); }

TEST_CASE("a trainer killed while it trains") {
  const std::string said = RequireRecovery({"trainer", 1, "train", 2});
  INFO(said);
  // lose_rollout_test requires that this line is missing where only a rollout was lost.
  REQUIRE(said.find("recovered: continuing from step") != std::string::npos);
}

TEST_CASE("a trainer killed before it optimizes") {
  RequireRecovery({"trainer", 0, "optimize", 2});
}

TEST_CASE("a trainer killed between two buckets of a sync") {
  RequireRecovery({"trainer", 1, "sync.bucket", 2});
}

TEST_CASE("a float32 run goes on from its checkpoint") {
  // The export beside it is bf16, which is not what float32 rollouts hold.
  const RigOptions options{.config = {{"model.compute_dtype", "float32"}}};
  RequireRecovery({"trainer", 1, "train", 2}, options, RunUndisturbed(options));
}

TEST_CASE("a trainer killed while it saves") { RequireRecovery({"trainer", 0, "save.export", 2}); }

TEST_CASE("a trainer killed while its rollout sleeps and no checkpoint is there yet") {
  // A run without checkpoints starts again from the model.
  RequireRecovery({"trainer", 1, "optimize", 2},
                  {{"trainer.save_freq", "-1"}, {"rollout.free_cache_engine", "true"}});
}

}  // namespace
}  // namespace tandem::testing
