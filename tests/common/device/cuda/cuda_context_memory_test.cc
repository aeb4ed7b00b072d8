// A context whose device has no memory left, or returns another address than before.
#include <catch2/catch.hpp>

#include "tests/common/device/cuda/context_fixture.h"

namespace tandem {
namespace {

using emulator::EmulatedCuda;
using testing::AddTo;
using testing::CallsOf;
using testing::Repeated;

}  // namespace

TEST_CASE("scratch that grows forgets graphs, which know its address") {
  EmulatedCuda cuda;
  const auto context = *CudaContext::Create(&cuda, 0);
  for (int i = 0; i < 2; ++i) {
    context->BeginGraph(7);
    context->Zero(context->Scratch(3, 1000), 1000);
    REQUIRE(context->EndGraph());
  }
  REQUIRE(context->graphs() == 1);
  std::byte* const small = context->Scratch(3, 500);
  REQUIRE(context->graphs() == 1);
  REQUIRE(context->Scratch(3, 8 << 20) != small);
  REQUIRE(context->graphs() == 0);
  REQUIRE(context->held_bytes() >= 8 << 20);
  // Also where it grows for another graph's first step.
  for (int i = 0; i < 2; ++i) {
    context->BeginGraph(7);
    REQUIRE(context->EndGraph());
  }
  context->BeginGraph(8);
  context->Scratch(3, 64 << 20);
  REQUIRE(context->EndGraph());
  REQUIRE(context->graphs() == 1);
  REQUIRE(context->Synchronize().ok());
}

TEST_CASE("where scratch finds no memory nothing is done until that was told, with the keys") {
  EmulatedCuda cuda;
  const auto context = *CudaContext::Create(&cuda, 0);
  std::byte* const before = context->Scratch(1, 64);
  context->Zero(before, 64);
  const int64_t held = context->held_bytes();
  cuda.FailCall("Malloc", absl::ResourceExhaustedError("the device is full"));
  std::byte* const none = context->Scratch(2, 3 << 20);
  REQUIRE(none != nullptr);
  REQUIRE_FALSE(context->launching());
  REQUIRE(context->held_bytes() == held);
  // Neither copies nor uploads nor further scratch go on, and a read waits and does not tell.
  cuda.ForgetCalls();
  const std::vector<char> large(size_t{9} << 20, 7);
  REQUIRE(context->Upload(large) != nullptr);
  REQUIRE(context->Scratch(2, 3 << 20) == none);
  std::byte read{42};
  context->Zero(before, 64);
  context->Read(&read, before, 1);
  REQUIRE(read == std::byte{42});
  REQUIRE(CallsOf(cuda, "Malloc") + CallsOf(cuda, "Fill") + CallsOf(cuda, "Copy") == 0);
  const absl::Status told = context->Synchronize();
  REQUIRE(absl::IsResourceExhausted(told));
  for (const char* part : {"the kernels' scratch (4194304 bytes)", "the device is full",
                           "rollout.gpu_memory_utilization", "actor.ppo_max_token_len_per_gpu"}) {
    INFO(told);
    REQUIRE(std::string(told.message()).find(part) != std::string::npos);
  }
  // The next step goes on as if nothing had been.
  REQUIRE(context->launching());
  REQUIRE(context->Scratch(2, 3 << 20) != none);
  context->Read(&read, before, 1);
  REQUIRE(read == std::byte{0});
  REQUIRE(context->Synchronize().ok());
}

TEST_CASE("where uploads or a graph find no memory the step is told, and recorded later") {
  for (const char* call : {"Malloc", "AllocateHost"}) {
    EmulatedCuda cuda;
    const auto context = *CudaContext::Create(&cuda, 0);
    auto* const sums = reinterpret_cast<int*>(context->Scratch(0, 128));
    context->Zero(sums, 128);
    const auto step = [&](int value) {
      context->BeginGraph(1);
      const int* const in = context->Upload(Repeated(value));
      if (context->launching()) Launch(AddTo, {.threads = 32}, context->stream(), in, sums);
      REQUIRE(context->EndGraph());
      int result = -1;
      context->Read(&result, sums + 31, sizeof(result));
      const absl::Status status = context->Synchronize();
      REQUIRE((status.ok() || absl::IsResourceExhausted(status)));
      return result;
    };
    cuda.FailCall(call, absl::ResourceExhaustedError("full"));
    REQUIRE(step(1) == -1);  // its upload
    REQUIRE(context->graphs() == 0);
    REQUIRE(step(10) == 10);
    cuda.FailCall(call, absl::ResourceExhaustedError("full"));
    REQUIRE(step(100) == -1);  // the arena of its graph
    REQUIRE(context->graphs() == 0);
    for (const int sum : {1010, 2010, 3010}) REQUIRE(step(1000) == sum);
    REQUIRE(CallsOf(cuda, "LaunchGraph") == 2);
  }
}

TEST_CASE("a device that fails while memory is asked for is that device's error") {
  EmulatedCuda cuda;
  const auto context = *CudaContext::Create(&cuda, 0);
  cuda.FailCall("Malloc", absl::InternalError("the device is lost"));
  REQUIRE(context->Allocate("the rope table", 64) == nullptr);
  const absl::Status told = context->Synchronize();
  REQUIRE(absl::IsInternal(told));
  REQUIRE(std::string(told.message()).find("rope table") != std::string::npos);
}

}  // namespace tandem
