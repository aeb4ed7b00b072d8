// Which device a run plans for, and the message that says so.
#include "controller/assembly/run_plan.h"

#include <algorithm>

#include <catch2/catch.hpp>

#include "common/net/protocol.h"
#include "tandem/v1/config.pb.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using testing::FakeClock;

constexpr int64_t kRunPlanGib = int64_t{1} << 30;

struct Workers {
  FakeClock clock;
  WorkerRegistry registry{
      {.topology = {.trainers = 2, .rollouts = 2}, .heartbeat_timeout = absl::Hours(1)}, clock};
  WorkerPool pool{registry, {}, {.trainers = 2, .rollouts = 2}, clock};

  void Come(WorkerRole role, int rank, int64_t device_bytes) {
    const WorkerKey key{role, rank};
    REQUIRE(registry
                .Register({.protocol = kProtocolVersion,
                           .key = key,
                           .address = "unix:/x",
                           .host = {.boot_id = "host"},
                           .device = "cuda:" + std::to_string(rank),
                           .boot_nonce = key.Text(),
                           .numerics_class = "cuda-sm90-own-bf16",
                           .kernel_set = "sm90",
                           .device_memory_bytes = device_bytes})
                .ok());
  }
  absl::StatusOr<int64_t> Await(const std::function<bool()>& interrupted = nullptr) {
    return AwaitGpuBytes(pool, registry, absl::Seconds(60), interrupted);
  }
};

ModelSpec PlannedSpec() {
  ModelSpec spec;
  spec.model_type = "llama";
  spec.vocab_size = 1000;
  spec.hidden_size = 128;
  spec.num_layers = 2;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = 64;
  spec.intermediate_size = 256;
  return spec;
}

v1::Config OnGpu() {
  v1::Config config = DefaultConfig();
  config.mutable_trainer()->set_device("cuda");
  return config;
}

}  // namespace

TEST_CASE("A run on GPUs plans for the smallest, once every worker is there", "[plan]") {
  Workers workers;
  workers.Come(WorkerRole::kTrainer, 0, 80 * kRunPlanGib);
  workers.Come(WorkerRole::kRollout, 0, 80 * kRunPlanGib);
  workers.Come(WorkerRole::kTrainer, 1, 40 * kRunPlanGib);
  int waits = 0;
  workers.clock.OnSleep([&] {
    if (++waits == 3) workers.Come(WorkerRole::kRollout, 1, 40 * kRunPlanGib);
  });
  REQUIRE(workers.Await().value() == 40 * kRunPlanGib);
  REQUIRE(waits == 3);
}

TEST_CASE("A run whose workers do not come, or say nothing of their memory, says so", "[plan]") {
  Workers workers;
  REQUIRE(absl::IsDeadlineExceeded(workers.Await().status()));
  REQUIRE(absl::IsCancelled(workers.Await([] { return true; }).status()));
  for (const int rank : {0, 1}) {
    workers.Come(WorkerRole::kTrainer, rank, 0);
    workers.Come(WorkerRole::kRollout, rank, 0);
  }
  REQUIRE(absl::IsFailedPrecondition(workers.Await().status()));
}

TEST_CASE("The user is told the peak, and what to change where it does not fit", "[plan]") {
  const testing::TempDir dir;
  testing::RecordingProgress progress;
  const auto roomy =
      PlanRun(PlannedSpec(), OnGpu(), 80 * kRunPlanGib, dir.path().string(), progress);
  REQUIRE(roomy.ok());
  REQUIRE(roomy->device_bytes == 80 * kRunPlanGib);
  REQUIRE_FALSE(roomy->host_is_device);
  REQUIRE(progress.messages.size() == 1);
  REQUIRE(progress.messages[0].find("of 80.00 GiB") != std::string::npos);
  // Less than the driver takes for both workers.
  const auto tight = PlanRun(PlannedSpec(), OnGpu(), kRunPlanGib, dir.path().string(), progress);
  REQUIRE(tight.ok());
  REQUIRE_FALSE(tight->fits());
  REQUIRE(progress.messages.size() == 3);
  REQUIRE(progress.messages[2].find("what to change") != std::string::npos);
  // On a CPU, and for auto, the host's memory is the device's.
  v1::Config config = OnGpu();
  for (const char* device : {"cpu", "auto"}) {
    config.mutable_trainer()->set_device(device);
    REQUIRE(PlanRun(PlannedSpec(), config, 80 * kRunPlanGib, dir.path().string(), progress)
                ->host_is_device);
  }
}

}  // namespace tandem
