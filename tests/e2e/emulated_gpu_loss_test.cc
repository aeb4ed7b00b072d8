// Runs on emulated GPUs that go wrong: a lost device has the effect of a killed worker, and a
// device that works as late as allowed computes the same.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"
#include "tests/support/build_folder.h"

namespace tandem::testing {
namespace {

constexpr int kEmulatedSteps = 2;

RigOptions GpuRun() {
  RigOptions options;
  options.model.num_heads = 2;
  options.model.num_kv_heads = 1;
  options.model.head_dim = 64;
  options.config = {{"trainer.device", "cuda"},
                    {"trainer.total_training_steps", std::to_string(kEmulatedSteps)},
                    {"trainer.save_freq", "1"},
                    {"weight_sync.bucket_mb", "1"},
                    {"weight_sync.transport", "shm"},
                    {"rollout.free_cache_engine", "true"},
                    {"rollout.sleep_level", "1"}};
  return options;
}

// With one more variable in every process's environment.
Outcome RunEmulated(ClusterRig& rig, const std::string& variable, const std::string& value) {
  rig.SetEnv("TANDEM_EMULATED_CUDA_MIB", "1024");
  rig.SetEnv(variable, value);
  const int code = rig.Launch({"--bin-dir", BuildFolder("emulated")}).Wait();
  INFO(rig.Log("launcher"));
  INFO(rig.Log("controller"));
  INFO(rig.Log("trainer"));
  INFO(rig.Log("rollout"));
  REQUIRE(code == 0);
  REQUIRE(rig.LeftBehind() == "");
  return OutcomeOf(rig, kEmulatedSteps);
}

const Outcome& GpuUndisturbed() {
  static const Outcome outcome = [] {
    ClusterRig rig(GpuRun());
    return RunEmulated(rig, "TANDEM_EMULATED_LATE", "0");
  }();
  return outcome;
}

// The device of `program` is lost at that call; the run comes to the same.
void RequireRecovered(const std::string& program, const std::string& call, int skipped) {
  INFO(program << " loses its device at " << call << " after " << skipped);
  ClusterRig rig(GpuRun());
  const Outcome outcome = RunEmulated(
      rig, "TANDEM_EMULATED_LOSS",
      program + ":" + call + ":" + std::to_string(skipped) + ":" + rig.dir().string() + "/lost");
  const std::string launcher = rig.Log("launcher");
  INFO(launcher);
  REQUIRE(launcher.find("exit code 75") != std::string::npos);
  REQUIRE(launcher.find("restart 1 of 3") != std::string::npos);
  REQUIRE(launcher.find("restart 2 of 3") == std::string::npos);
  REQUIRE(outcome.metrics == GpuUndisturbed().metrics);
  REQUIRE(outcome.weights == GpuUndisturbed().weights);
}

}  // namespace

TEST_CASE("a trainer whose GPU is lost is started again, and the run comes to the same") {
  RequireRecovered("tandem-trainer", "Synchronize", 40);
}

TEST_CASE("a rollout whose GPU is lost is started again, and the run comes to the same") {
  RequireRecovered("tandem-rollout", "LaunchGraph", 3);
}

TEST_CASE("a rollout whose GPU is lost as it goes to sleep is started again") {
  RequireRecovered("tandem-rollout", "UnmapPages", 0);
}

TEST_CASE("a run on GPUs that work as late as they may has the same bits") {
  ClusterRig rig(GpuRun());
  const Outcome late = RunEmulated(rig, "TANDEM_EMULATED_LATE", "0xffffffffffffffff");
  RequireLearned(late, kEmulatedSteps);
  REQUIRE(late.metrics == GpuUndisturbed().metrics);
  REQUIRE(late.weights == GpuUndisturbed().weights);
}

}  // namespace tandem::testing
