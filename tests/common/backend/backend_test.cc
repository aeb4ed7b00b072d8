// Which backend a worker gets, and the message if it gets none. The GPUs are emulated.
#include "common/backend/backend.h"

#include <string>

#include <catch2/catch.hpp>

#include "common/backend/cuda_backend.h"
#include "common/device/device_memory.h"
#include "tests/common/ops/cuda/linear/fake_lt.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

ModelSpec Model(int64_t head_dim, int64_t intermediate) {
  ModelSpec spec;
  spec.hidden_size = 128;
  spec.intermediate_size = intermediate;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = head_dim;
  return spec;
}

// A GPU with a stand-in for cuBLASLt, whose proofs are small enough for plain loops.
struct ProvingGpu {
  ProvingGpu() {
    auto api = std::make_unique<emulator::EmulatedCuda>();
    cuda = api.get();
    auto fake = std::make_unique<testing::FakeLt>();
    lt = fake.get();
    lt->Offer(1 << 20, {testing::FakeLt::Algorithm(testing::LtFault::kNone, 3)});
    CudaLinearOptions options;
    options.lt = std::move(fake);
    options.proof = {.buckets = {16, 32}, .reference_rows = 48};
    backend = MakeCudaBackend(std::move(api), 0, std::move(options)).value();
  }
  emulator::EmulatedCuda* cuda;
  testing::FakeLt* lt;
  std::unique_ptr<Backend> backend;
};

ModelSpec SmallModel() {
  ModelSpec spec = Model(64, 96);
  spec.vocab_size = 40;
  return spec;
}

}  // namespace

TEST_CASE("a GPU decides at the start how a model is computed: a rollout and a trainer alike") {
  ProvingGpu rollout, trainer;
  const int64_t before = rollout.cuda->used_bytes();
  REQUIRE(rollout.backend->PrepareModel(SmallModel(), 35, ModelUse::kForward).ok());
  REQUIRE(rollout.cuda->used_bytes() == before);
  REQUIRE(trainer.backend->PrepareModel(SmallModel(), 35, ModelUse::kTraining).ok());
  const KernelChoices mine = rollout.backend->numerics_choices();
  const KernelChoices theirs = trainer.backend->numerics_choices();
  // qkv, o, gate and up, down, the head.
  REQUIRE(mine.size() == 5);
  REQUIRE(theirs.size() > mine.size());
  for (const auto& [shape, choice] : mine) {
    INFO(shape);
    REQUIRE(choice.find("cuBLASLt algorithm 300") == 0);
    REQUIRE(theirs.at(shape) == choice);
  }
}

TEST_CASE("a rank without memory for a proof does not start, and never chooses otherwise") {
  ProvingGpu one, other;
  one.cuda->FailCall("Malloc", absl::ResourceExhaustedError("full"));
  const absl::Status refused = one.backend->PrepareModel(SmallModel(), 40, ModelUse::kForward);
  REQUIRE(absl::IsResourceExhausted(refused));
  REQUIRE(Says(refused, "row-invariance proof"));
  REQUIRE(one.backend->PrepareModel(SmallModel(), 40, ModelUse::kForward).ok());
  REQUIRE(other.backend->PrepareModel(SmallModel(), 40, ModelUse::kForward).ok());
  REQUIRE(one.backend->numerics_choices() == other.backend->numerics_choices());
}

TEST_CASE("a model that cannot be prepared is refused, and a host has nothing to prepare") {
  const auto gpu = MakeBackend({.device = "cuda", .place = "cuda:0"}).value();
  REQUIRE(Says(gpu->PrepareModel(SmallModel(), 41, ModelUse::kForward), "41 ids"));
  REQUIRE(Says(gpu->PrepareModel(Model(80, 96), 1, ModelUse::kForward), "80"));
  // Without cuBLASLt each shape is said to be our own kernels'.
  REQUIRE(gpu->PrepareModel(SmallModel(), 40, ModelUse::kForward).ok());
  for (const auto& [shape, choice] : gpu->numerics_choices()) REQUIRE(choice == "own kernels");
  const auto host = MakeBackend({.device = "cpu"}).value();
  REQUIRE(host->PrepareModel(SmallModel(), 40, ModelUse::kTraining).ok());
  REQUIRE(host->numerics_choices().empty());
}

TEST_CASE("cuda is a GPU, cpu and auto are the host") {
  for (const char* device : {"cpu", "auto"}) {
    const auto host = MakeBackend({.device = device, .place = "cuda:0"}).value();
    REQUIRE(host->device()->is_host());
    REQUIRE(host->Transport("shm").ok());
    REQUIRE(absl::IsFailedPrecondition(host->Transport("ipc").status()));
  }
  const auto gpu = MakeBackend({.device = "cuda", .place = "cuda:1"}).value();
  REQUIRE(!gpu->device()->is_host());
  REQUIRE(gpu->MakeForwardOps(DType::kBFloat16).value()->weight_format() ==
          WeightFormat::kRowMajor);
  REQUIRE(gpu->Transport("ipc").ok());
  REQUIRE(Says(gpu->Transport("pigeon").status(), "pigeon"));
}

TEST_CASE("a worker that is to use a GPU and was given none is told how to start it") {
  for (const char* place : {"cpu:0", "cuda", "cuda:", "cuda:x", "cuda:-1"}) {
    const absl::Status refused = MakeBackend({.device = "cuda", .place = place}).status();
    REQUIRE(absl::IsInvalidArgument(refused));
    REQUIRE(Says(refused, "--device cuda:<number>"));
  }
  REQUIRE(Says(MakeBackend({.device = "cuda", .place = "cuda:99"}).status(), "number 99"));
}

TEST_CASE("a worker's device is a GPU with its memory and UUID, or what the host may use") {
  const DeviceIdentity first = IdentifyDevice("cuda:0").value();
  REQUIRE(first.memory_bytes == emulator::EmulatedCudaOptions().total_bytes);
  REQUIRE(first.uuid.size() == 32);
  REQUIRE(IdentifyDevice("cuda:1").value().uuid != first.uuid);
  REQUIRE(IdentifyDevice("cpu:3").value().memory_bytes == MemoryLimitBytes());
  REQUIRE(IdentifyDevice("cpu:3").value().uuid.empty());
  REQUIRE(Says(IdentifyDevice("cuda:99").status(), "trainer.device=cuda"));
}

TEST_CASE("a GPU without virtual memory is refused by what it lacks") {
  const auto without = MakeCudaBackend(std::make_unique<emulator::EmulatedCuda>(
                                           emulator::EmulatedCudaOptions{.virtual_memory = false}),
                                       0);
  REQUIRE(absl::IsFailedPrecondition(without.status()));
  REQUIRE(Says(without.status(), "no virtual memory"));
}

TEST_CASE("a model that a GPU's kernels do not take is refused by the size, with the way on") {
  const auto gpu = MakeBackend({.device = "cuda", .place = "cuda:0"}).value();
  REQUIRE(gpu->CheckModel(Model(64, 96)).ok());
  REQUIRE(Says(gpu->CheckModel(Model(80, 96)), "80"));
  const absl::Status narrow = gpu->CheckModel(Model(64, 100));
  REQUIRE(Says(narrow, "intermediate_size is 100"));
  REQUIRE(Says(narrow, "trainer.device=cpu"));
  const auto host = MakeBackend({.device = "cpu"}).value();
  REQUIRE(host->CheckModel(Model(80, 100)).ok());
}

}  // namespace tandem
