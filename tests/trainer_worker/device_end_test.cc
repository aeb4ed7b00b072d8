// Where a training pass on a GPU ends, and which rank reports an error of its device.
#include <algorithm>
#include <map>

#include "common/backend/cuda_backend.h"
#include "common/base/mutex.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/emulator/emulator.h"
#include "tests/support/text.h"
#include "tests/trainer_worker/trainer_ranks.h"

namespace tandem {
namespace {

using namespace tandem::testing;
using emulator::EmulatedCuda;

// The GPU of each backend that was made, which it owns.
Mutex gpus_mutex;
std::map<const Device*, EmulatedCuda*> gpus ABSL_GUARDED_BY(gpus_mutex);

std::unique_ptr<Backend> MakeGpu(emulator::EmulatedCudaOptions options) {
  auto api = std::make_unique<EmulatedCuda>(options);
  EmulatedCuda* const gpu = api.get();
  auto backend = MakeCudaBackend(std::move(api), 0).value();
  const MutexLock lock(gpus_mutex);
  gpus[backend->device()] = gpu;
  return backend;
}
std::unique_ptr<Backend> MakePromptGpu() { return MakeGpu({}); }
std::unique_ptr<Backend> MakeLateGpu() { return MakeGpu({.late_streams = ~uint64_t{0}}); }

EmulatedCuda& GpuOf(Rank& rank) {
  const MutexLock lock(gpus_mutex);
  return *gpus.at(rank.backend->device());
}

struct DeviceEndFixture {
  DeviceEndFixture() {
    options.model_dir = (dir.path() / "model").string();
    // The smallest that a GPU's kernels take.
    const TinyModelOptions model = {.num_layers = 1,
                                    .num_heads = 2,
                                    .num_kv_heads = 1,
                                    .head_dim = 64,
                                    .intermediate_size = 64};
    REQUIRE(WriteTinyModel(options.model_dir, model).ok());
    options.make_backend = MakePromptGpu;
  }
  absl::Status Train(Rank& rank, int index, int ranks) const {
    return rank.session->Train(RequestFor(samples), Share(samples, index, ranks)).status();
  }

  TempDir dir;
  TrainerRanksOptions options;
  const std::vector<Sample> samples = RandomSamples(2, 3);
};

}  // namespace

TEST_CASE("A training pass ends when its GPU does: nothing of it is left to the optimizer",
          "[trainer][cuda]") {
  DeviceEndFixture f;
  f.options.make_backend = MakeLateGpu;
  TrainerRanks group(1, f.options);
  TrainOn(group, f.samples);
  const int64_t kernels = emulator::KernelsRun();
  REQUIRE(kernels > 0);
  REQUIRE(group[0].backend->device()->Synchronize().ok());
  REQUIRE(emulator::KernelsRun() == kernels);
}

TEST_CASE("A rank whose GPU has no memory in its backward pass says so in that pass, to all",
          "[trainer][cuda]") {
  DeviceEndFixture f;
  const auto allocations = [&f](int ranks) {
    TrainerRanks group(ranks, f.options);
    GpuOf(group[0]).ForgetCalls();
    TrainOn(group, f.samples);
    const std::vector<std::string> calls = GpuOf(group[0]).calls();
    return static_cast<int>(std::count(calls.begin(), calls.end(), "Malloc"));
  };
  for (const int ranks : {1, 2}) {
    INFO(ranks << " ranks");
    // The last of a pass is the backward pass's.
    const int last = allocations(ranks) - 1;
    REQUIRE(last > 0);
    TrainerRanks group(ranks, f.options);
    GpuOf(group[0]).FailCall("Malloc", absl::ResourceExhaustedError("full"), last);
    group.Run([&](Rank& rank, int index) { return f.Train(rank, index, ranks); });
    INFO(group[0].status);
    REQUIRE(absl::IsResourceExhausted(group[0].status));
    if (ranks == 1) continue;
    INFO(group[1].status);
    REQUIRE(absl::IsAborted(group[1].status));
    REQUIRE(Says(group[1].status, "trainer 0 failed in the backward pass"));
  }
}

TEST_CASE("A rank whose GPU fails at its share of the gradient norm does not let the others wait",
          "[trainer][cuda]") {
  DeviceEndFixture f;
  TrainerRanks group(2, f.options);
  TrainOn(group, f.samples);
  GpuOf(group[1]).FailCall("Synchronize", absl::InternalError("broken"));
  group.Run([](Rank& rank, int) { return rank.session->Step().status(); });
  INFO(group[0].status << "; " << group[1].status);
  REQUIRE(absl::IsInternal(group[1].status));
  REQUIRE(absl::IsAborted(group[0].status));
  REQUIRE(Says(group[0].status, "trainer 1 failed in squaring the gradients"));
}

}  // namespace tandem
