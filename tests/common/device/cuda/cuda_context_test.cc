#include "common/device/cuda/cuda_context.h"

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "tests/common/device/cuda/context_fixture.h"
#include "tests/emulator/emulator.h"

namespace tandem {
namespace {

using emulator::EmulatedCuda;
using testing::AddTo;
using testing::CallsOf;
using testing::Repeated;

}  // namespace

TEST_CASE("what is uploaded holds until the device is waited for") {
  EmulatedCuda cuda;
  const auto context = *CudaContext::Create(&cuda, 0);
  const std::vector<int> first = Repeated(3), second = Repeated(4);
  const int64_t epoch = context->upload_epoch();
  const int* const a = context->Upload(first);
  const int* const b = context->Upload(second);
  // More than one arena holds: the ones before stay where they are.
  const std::vector<char> large(size_t{9} << 20, 7);
  const char* const c = context->Upload(large);
  REQUIRE(context->upload_epoch() == epoch);
  REQUIRE(reinterpret_cast<uintptr_t>(b) % 256 == 0);
  int values[2];
  char last;
  context->Copy(&values[0], a + 31, 4);
  context->Copy(&values[1], b, 4);
  context->Read(&last, c + large.size() - 1, 1);
  REQUIRE(values[0] == 3);
  REQUIRE(values[1] == 4);
  REQUIRE(last == 7);
  REQUIRE(context->upload_epoch() > epoch);
  const int64_t held = context->held_bytes();
  context->Upload(large);
  REQUIRE(context->held_bytes() == held);
}

TEST_CASE("late reads wait for nothing and are there when the device was waited for") {
  EmulatedCuda cuda({.late_streams = 1});
  const auto context = *CudaContext::Create(&cuda, 0);
  auto* const there = reinterpret_cast<int*>(context->Scratch(0, 1 << 20));
  const std::vector<int> values(size_t{1} << 18, 7);
  context->Copy(there, values.data(), 1 << 20);
  int first = 0, last = 0;
  std::vector<int> all(values.size(), 0);  // more than one landing holds
  cuda.ForgetCalls();
  context->ReadLater(&first, there, 4);
  context->ReadLater(all.data(), there, 1 << 20);
  context->ReadLater(&last, there + all.size() - 1, 4);
  context->ReadLater(nullptr, nullptr, 0);
  REQUIRE(CallsOf(cuda, "Synchronize") == 0);
  REQUIRE(first == 0);
  REQUIRE(all.back() == 0);
  REQUIRE(context->Synchronize().ok());
  REQUIRE(CallsOf(cuda, "Synchronize") == 1);
  REQUIRE(first == 7);
  REQUIRE(last == 7);
  REQUIRE(all == values);
  // The landing is used again, in the order of the device's work.
  int before = 0, after = 0;
  context->ReadLater(&before, there, 4);
  context->Zero(there, 4);
  context->Read(&after, there, 4);
  REQUIRE(before == 7);
  REQUIRE(after == 0);
  REQUIRE(CallsOf(cuda, "AllocateHost") == 3);
}

TEST_CASE("late reads that fail, or that nobody waited for, write nothing") {
  EmulatedCuda cuda({.late_streams = 1});
  int failed = 5, forgotten = 5;
  {
    const auto context = *CudaContext::Create(&cuda, 0);
    std::byte* const there = context->Scratch(0, 100 << 10);
    context->Zero(there, 64);
    REQUIRE(context->Synchronize().ok());
    cuda.FailCall("Synchronize", absl::InternalError("CUDA_ERROR_LAUNCH_FAILED"));
    context->ReadLater(&failed, there, 4);
    REQUIRE(context->Synchronize().message() == "CUDA_ERROR_LAUNCH_FAILED");
    cuda.FailCall("AllocateHost", absl::ResourceExhaustedError("no 128 KiB"));
    std::vector<std::byte> large(size_t{100} << 10);
    context->ReadLater(large.data(), there, 100 << 10);
    REQUIRE(context->Synchronize().message() ==
            "pinned memory for results of the device: no 128 KiB");
    REQUIRE(context->Synchronize().ok());
    context->ReadLater(&forgotten, there, 4);
  }
  REQUIRE(failed == 5);
  REQUIRE(forgotten == 5);
  REQUIRE(cuda.used_bytes() == 0);
}

TEST_CASE("a step is done, then captured, then replayed, each time with its own numbers") {
  EmulatedCuda cuda;
  const auto context = *CudaContext::Create(&cuda, 0);
  auto* const sums = reinterpret_cast<int*>(context->Scratch(0, 128));
  context->Zero(sums, 128);
  int launched = 0;
  const auto step = [&](int value) {
    context->BeginGraph(1);
    const int* const in = context->Upload(Repeated(value));
    if (context->launching()) {
      Launch(AddTo, {.threads = 32}, context->stream(), in, sums);
      ++launched;
    }
    REQUIRE(context->EndGraph());
    int result;
    context->Read(&result, sums + 31, sizeof(result));
    return result;
  };
  REQUIRE(step(1) == 1);
  REQUIRE(step(10) == 11);
  REQUIRE(step(100) == 111);
  REQUIRE(step(1000) == 1111);
  REQUIRE(launched == 2);  // done once, captured once
  REQUIRE(CallsOf(cuda, "LaunchGraph") == 3);
  REQUIRE(context->graphs() == 1);
  // Without a wait in between the second replay waits for the first: it would overwrite its input.
  context->BeginGraph(1);
  context->Upload(Repeated(1));
  REQUIRE(context->EndGraph());
  cuda.ForgetCalls();
  context->BeginGraph(1);
  REQUIRE(CallsOf(cuda, "Synchronize") == 1);
  context->Upload(Repeated(1));
  REQUIRE(context->EndGraph());
  REQUIRE(context->Synchronize().ok());
}

// Adds the sum of its arguments so far; repeats that when asked to.
class SummingSteps {
 public:
  explicit SummingSteps(CudaContext* context)
      : context_(context), sums_(reinterpret_cast<int*>(context->Scratch(0, 128))) {
    context->Zero(sums_, 128);
  }
  int Step(uint64_t key, int value) {
    context_->BeginGraph(key);
    Add(value);
    if (!context_->EndGraph()) {
      ++again;
      Add(value);
    }
    int result;
    context_->Read(&result, sums_ + 31, sizeof(result));
    return result;
  }
  int again = 0;  // steps that were

 private:
  void Add(int value) {
    const int* const in = context_->Upload(Repeated(value));
    if (context_->launching()) {
      tandem::Launch(AddTo, {.threads = 32}, context_->stream(), in, sums_);
    }
  }

  CudaContext* const context_;
  int* const sums_;
};

TEST_CASE("a step that cannot be captured is done without a graph, with the same numbers") {
  const std::string call = GENERATE("BeginCapture", "EndCapture", "LaunchGraph");
  const uint64_t late = GENERATE(0, 1);
  INFO(call << ", late " << late);
  EmulatedCuda cuda({.late_streams = late});
  const auto context = *CudaContext::Create(&cuda, 0);
  SummingSteps steps(context.get());
  cuda.FailCall(call, absl::InternalError("not today"));
  for (int i = 1; i <= 5; ++i) REQUIRE(steps.Step(1, 2 * i) == i * (i + 1));
  REQUIRE(steps.again == (call == "BeginCapture" ? 0 : 1));
  REQUIRE(CallsOf(cuda, "BeginCapture") == 1);  // this key never again
  REQUIRE(context->Synchronize().ok());
  context->DropGraphs();
  for (int i = 6; i <= 9; ++i) REQUIRE(steps.Step(1, 2 * i) == i * (i + 1));
  REQUIRE(CallsOf(cuda, "BeginCapture") == 1);
  // Another key is captured as always.
  for (int i = 10; i <= 13; ++i) REQUIRE(steps.Step(2, 2 * i) == i * (i + 1));
  REQUIRE(CallsOf(cuda, "BeginCapture") == 2);
  REQUIRE(CallsOf(cuda, "EndCapture") == (call == "BeginCapture" ? 1 : 2));
}

TEST_CASE("a step that does what no capture bears is done without a graph") {
  EmulatedCuda cuda;
  const auto context = *CudaContext::Create(&cuda, 0);
  auto* const sums = reinterpret_cast<int*>(context->Scratch(0, 128));
  context->Zero(sums, 128);
  std::vector<std::byte*> allocated;
  const auto add = [&] {
    const int* const in = context->Upload(Repeated(1));
    if (auto memory = cuda.Malloc(64); memory.ok()) allocated.push_back(*memory);
    context->Zero(reinterpret_cast<std::byte*>(sums) + 64, 64);
    if (context->launching()) Launch(AddTo, {.threads = 32}, context->stream(), in, sums);
  };
  for (int i = 1; i <= 4; ++i) {
    context->BeginGraph(1);
    add();
    if (!context->EndGraph()) add();
    REQUIRE(context->Synchronize().ok());
    REQUIRE(sums[0] == i);
    REQUIRE(sums[31] == 1);
  }
  REQUIRE(allocated.size() == 4);
  REQUIRE(CallsOf(cuda, "BeginCapture") == 1);
  for (std::byte* const memory : allocated) REQUIRE(cuda.Free(memory).ok());
}

TEST_CASE("a graph is not given up quietly where the device is lost") {
  const std::string call = GENERATE("BeginCapture", "EndCapture", "LaunchGraph");
  EmulatedCuda cuda;
  const auto context = *CudaContext::Create(&cuda, 0);
  SummingSteps steps(context.get());
  steps.Step(1, 1);
  cuda.FailCall(call, WithDeviceLost(absl::InternalError("an illegal address")));
  steps.Step(1, 1);
  REQUIRE(IsDeviceLost(context->Synchronize()));
}

TEST_CASE("a graph that is refused is made anew") {
  EmulatedCuda cuda;
  const auto context = *CudaContext::Create(&cuda, 0);
  SummingSteps steps(context.get());
  steps.Step(1, 1);
  steps.Step(1, 1);
  REQUIRE(context->graphs() == 1);
  for (const bool captured : {false, true}) {
    INFO("captured " << captured);
    if (captured) {
      context->BeginGraph(1);
      REQUIRE(context->EndGraph());  // the first step of a key
    }
    context->BeginGraph(1);
    REQUIRE_FALSE(context->eager());
    REQUIRE(context->launching() == captured);
    context->RefuseGraph();
    REQUIRE_FALSE(context->EndGraph());
    REQUIRE(context->eager());
    REQUIRE(context->graphs() == 0);
  }
  for (int i = 3; i <= 6; ++i) REQUIRE(steps.Step(1, 1) == i);
  REQUIRE(steps.again == 0);
  REQUIRE(CallsOf(cuda, "BeginCapture") == 3);
  REQUIRE(context->Synchronize().ok());
}

TEST_CASE("of more keys than are kept, the one that was used longest ago goes") {
  EmulatedCuda cuda;
  const auto context = *CudaContext::Create(&cuda, 0);
  SummingSteps steps(context.get());
  int sum = 0;
  const auto use = [&](uint64_t key) { REQUIRE(steps.Step(key, 1) == ++sum); };
  for (uint64_t key = 0; key < CudaContext::kMaxGraphs; ++key) {
    use(key);
    use(key);
  }
  const int64_t held = context->held_bytes();
  const int64_t captures = CallsOf(cuda, "BeginCapture");
  use(0);  // key 1 is the oldest now
  REQUIRE(CallsOf(cuda, "DestroyGraph") == 0);
  use(1000);
  use(1000);
  REQUIRE(context->graphs() == CudaContext::kMaxGraphs);
  REQUIRE(context->held_bytes() == held);
  REQUIRE(CallsOf(cuda, "DestroyGraph") == 1);
  use(0);
  REQUIRE(CallsOf(cuda, "BeginCapture") == captures + 1);
  use(1);  // as if new
  use(1);
  REQUIRE(CallsOf(cuda, "BeginCapture") == captures + 2);
  REQUIRE(CallsOf(cuda, "DestroyGraph") == 2);
}

TEST_CASE("the first error is told when the device is waited for, and everything is given back") {
  EmulatedCuda cuda;
  {
    const auto context = *CudaContext::Create(&cuda, 0);
    std::byte* const to = context->Scratch(0, 64);
    cuda.FailCall("Fill", absl::InternalError("first"));
    cuda.FailCall("Copy", absl::InternalError("second"));
    context->Zero(to, 64);
    context->Copy(to, to, 64);
    REQUIRE(context->Synchronize().message() == "first");
    REQUIRE(context->Synchronize().ok());
    context->Upload(Repeated(1));
  }
  REQUIRE(cuda.used_bytes() == 0);
  REQUIRE(absl::IsFailedPrecondition(CudaContext::Create(&cuda, 3).status()));
}

}  // namespace tandem
