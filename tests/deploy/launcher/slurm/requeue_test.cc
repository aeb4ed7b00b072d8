#include "deploy/launcher/slurm/requeue.h"

#include <csignal>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/process/exit_code.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

TEST_CASE("a job begins anew after the time limit's signal and where a restart is asked for") {
  REQUIRE(WantsRequeue(128 + SIGUSR1));
  REQUIRE(WantsRequeue(kExitRestart));
  REQUIRE(WantsRequeue(kExitPeerLost));
  for (const int code :
       {int{kExitDone}, int{kExitDoesNotFit}, int{kExitRefused}, int{kExitDataError},
        int{kExitNoInput}, int{kExitInternal}, int{kExitIoError}, 128 + SIGTERM, 128 + SIGINT}) {
    INFO(code);
    REQUIRE_FALSE(WantsRequeue(code));
  }
}

TEST_CASE("requeues are counted from the newest checkpoint on") {
  const testing::TempDir dir;
  REQUIRE(CountRequeue(dir.path(), "7", "").value() == 1);
  REQUIRE(CountRequeue(dir.path(), "7", "").value() == 2);
  REQUIRE(CountRequeue(dir.path(), "7", "step_1").value() == 1);
  REQUIRE(CountRequeue(dir.path(), "7", "step_1").value() == 2);
  REQUIRE(CountRequeue(dir.path(), "7", "step_4").value() == 1);
  REQUIRE(CountRequeue(dir.path(), "8", "step_4").value() == 1);  // submitted again
  REQUIRE(CountRequeue(dir.path(), "8", "step_4").value() == 2);
  std::ofstream(dir.path() / "requeues") << "nonsense";
  REQUIRE(CountRequeue(dir.path(), "7", "step_4").value() == 1);
  REQUIRE_FALSE(CountRequeue(dir.path() / "nowhere", "7", "").ok());
}

TEST_CASE("the life of a job after a requeue continues its launch, and no other's") {
  const testing::TempDir dir;
  const auto id = [&](int requeues) { return LaunchIdOf(dir.path(), "7", requeues, "40-1"); };
  REQUIRE(id(0) == "slurm-7-40-1");
  REQUIRE(id(1) == "slurm-7-40-1");  // it was lost before it took the folder over
  std::ofstream(dir.path() / "launch") << "slurm-7-12-9\n";
  REQUIRE(id(1) == "slurm-7-12-9");
  REQUIRE(id(0) == "slurm-7-40-1");  // another job of this number, as of a new cluster
  std::ofstream(dir.path() / "launch") << "slurm-70-12-9\n";
  REQUIRE(id(1) == "slurm-7-40-1");
}

}  // namespace
}  // namespace tandem
