// A checkpoint cannot be written whole: the older one stays, and the next start continues from it.
// Unlike disk_full_test.cc this needs no root: the size of files is limited.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

TEST_CASE("a file that may not grow at a checkpoint ends the run with its path") {
  // Large enough that the limit below leaves room for the memory that ranks share (4 MiB).
  ClusterRig rig({.model = {.intermediate_size = 4096}});
  rig.SetPairs(2);
  rig.UseRunDir("whole");
  rig.Set("trainer.total_training_steps", "2");
  REQUIRE(rig.Launch().Wait() == 0);
  const std::string expected = rig.Weights(2);
  REQUIRE_FALSE(expected.empty());

  rig.UseRunDir("limited");
  rig.Set("trainer.total_training_steps", "1");
  REQUIRE(rig.Launch().Wait() == 0);
  const std::string first = rig.Weights(1);
  rig.Set("trainer.total_training_steps", "2");
  // A rank's half of the training state is three times as large as the exported weights.
  rig.LimitFileSize(2 * static_cast<int64_t>(first.size()));
  const int code = rig.Launch({"--grace", "5"}).Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(code == 74);
  REQUIRE_FALSE(Has(said, "recovering"));
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(Has(said, "checkpoints/step_2"));
  REQUIRE(Has(said, "File too large"));
  REQUIRE(rig.Weights(1) == first);
  REQUIRE_FALSE(rig.HasRunFile("checkpoints/step_2"));
  REQUIRE_FALSE(rig.HasRunFile("checkpoints/step_2.tmp"));

  rig.LimitFileSize(std::nullopt);
  const int resumed = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(resumed == 0);
  REQUIRE(Has(rig.Log("launcher"), "resuming after step 1"));
  REQUIRE(rig.Weights(2) == expected);
  REQUIRE(rig.LeftBehind() == "");
}

}  // namespace
}  // namespace tandem::testing
