// What a driver refuses, the emulator refuses too: code that passes here must not fail there.
#include <functional>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/status.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/emulator/emulator.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using emulator::EmulatedCuda;
using testing::Says;

__global__ void Increment(int* numbers) { ++numbers[threadIdx.x]; }

// A status by value: it outlives the thread.
absl::Status OnAnotherThread(const std::function<absl::Status()>& work) {
  absl::Status status;
  std::thread([&] { status = work(); }).join();
  return status;
}

}  // namespace

TEST_CASE(
    "while a thread captures, it may not allocate, free, ask events or copy pageable memory") {
  EmulatedCuda cuda;
  const CudaStream stream = *cuda.CreateStream();
  const CudaEvent event = *cuda.CreateEvent(false);
  std::byte* const device = *cuda.Malloc(64);
  std::byte* const pinned = *cuda.AllocateHost(64);
  std::vector<std::byte> pageable(64);
  const std::vector<std::function<absl::Status()>> refused = {
      [&] { return cuda.Malloc(64).status(); },
      [&] { return cuda.Free(device); },
      [&] { return cuda.AllocateHost(64).status(); },
      [&] { return cuda.HasHappened(event).status(); },
      [&] { return cuda.Synchronize(stream); },
      [&] { return cuda.Copy(device, pageable.data(), 64, stream); },
      [&] { return cuda.Copy(pageable.data(), device, 64, stream); }};
  for (size_t i = 0; i < refused.size(); ++i) {
    INFO("call " << i);
    REQUIRE(cuda.BeginCapture(stream).ok());
    REQUIRE(Says(refused[i](), "StreamCaptureUnsupported"));
    REQUIRE(Says(cuda.EndCapture(stream).status(), "StreamCaptureInvalidated"));
  }
  // Others may: the capture is a thread's.
  REQUIRE(cuda.BeginCapture(stream).ok());
  REQUIRE(cuda.Copy(device, pinned, 64, stream).ok());
  REQUIRE(OnAnotherThread([&] { return cuda.Malloc(64).status(); }).ok());
  REQUIRE(OnAnotherThread([&] { return cuda.HasHappened(event).status(); }).ok());
  REQUIRE(cuda.DestroyGraph(*cuda.EndCapture(stream)).ok());
  REQUIRE(cuda.Free(device).ok());
  REQUIRE(cuda.DestroyStream(stream).ok());
}

TEST_CASE("a capture whose end fails is over all the same") {
  EmulatedCuda cuda;
  const CudaStream stream = *cuda.CreateStream();
  REQUIRE(cuda.BeginCapture(stream).ok());
  cuda.FailCall("EndCapture", absl::InternalError("as told"));
  REQUIRE(cuda.EndCapture(stream).status().message() == "as told");
  REQUIRE(cuda.Synchronize(stream).ok());
  REQUIRE(cuda.DestroyStream(stream).ok());
}

TEST_CASE("a process cannot open what it exported itself") {
  EmulatedCuda cuda, same, other({.process = -1});
  std::byte* const memory = *cuda.Malloc(64);
  const CudaEvent event = *cuda.CreateEvent(true);
  const CudaIpcHandle of_memory = *cuda.ExportMemory(memory), of_event = *cuda.ExportEvent(event);
  for (EmulatedCuda* const refuses : {&cuda, &same}) {
    REQUIRE(Says(refuses->OpenMemory(of_memory).status(), "DeviceUninitialized"));
    REQUIRE(Says(refuses->OpenEvent(of_event).status(), "DeviceUninitialized"));
  }
  REQUIRE(other.CloseMemory(*other.OpenMemory(of_memory)).ok());
  REQUIRE(other.DestroyEvent(*other.OpenEvent(of_event)).ok());
}

TEST_CASE("memory that its owner has freed is not touched by who has it open") {
  EmulatedCuda owner, other({.process = -1});
  const CudaStream stream = *other.CreateStream();
  std::byte* const pinned = *other.AllocateHost(64);
  std::byte* const kept = *owner.Malloc(64);
  std::byte* const memory = *owner.Malloc(64);
  std::byte* const kept_there = *other.OpenMemory(*owner.ExportMemory(kept));
  std::byte* const there = *other.OpenMemory(*owner.ExportMemory(memory));
  REQUIRE(other.Copy(pinned, there, 64, stream).ok());
  REQUIRE(owner.Free(memory).ok());
  REQUIRE(other.Copy(pinned, kept_there, 64, stream).ok());
  const absl::Status touched = other.Copy(pinned, there + 8, 8, stream);
  REQUIRE(Says(touched, "cudaErrorIllegalAddress"));
  REQUIRE(IsDeviceLost(touched));
  REQUIRE(IsDeviceLost(other.Copy(pinned, kept_there, 64, stream)));
  REQUIRE(owner.Free(kept).ok());
  REQUIRE(IsDeviceLost(other.DestroyStream(stream)));
}

TEST_CASE("a thread that chose no device is told where device 0 would be the wrong one") {
  EmulatedCuda cuda({.devices = 2});
  REQUIRE(OnAnotherThread([&] { return cuda.Malloc(64).status(); }).ok());  // device 0 it is
  REQUIRE(cuda.UseDevice(1).ok());
  const CudaStream stream = *cuda.CreateStream();
  const CudaEvent event = *cuda.CreateEvent(false);
  std::byte* const memory = *cuda.Malloc(128);
  const auto pass_stream = [&] {
    const absl::StatusOr<CudaStream> passing = cuda.CreateStream();
    return passing.ok() ? cuda.DestroyStream(*passing) : passing.status();
  };
  const std::vector<std::function<absl::Status()>> calls = {
      [&] { return cuda.Malloc(64).status(); }, pass_stream,
      [&] { return cuda.Record(event, stream); }, [&] { return cuda.HasHappened(event).status(); },
      [&] { return cuda.FreeBytes().status(); }};
  for (const auto& call : calls) {
    REQUIRE(Says(OnAnotherThread(call), "never chose a device"));
    REQUIRE(OnAnotherThread([&] {
              const absl::Status used = cuda.UseDevice(1);
              return used.ok() ? call() : used;
            }).ok());
  }
  // A kernel needs the device of its stream.
  int* const numbers = reinterpret_cast<int*>(memory);
  REQUIRE(cuda.Fill(memory, 0, 128, stream).ok());
  REQUIRE(cuda.UseDevice(0).ok());
  Launch(Increment, {.threads = 32}, stream, numbers);
  REQUIRE(Says(cuda.LastError(), "cudaErrorInvalidResourceHandle"));
  REQUIRE(cuda.LastError().ok());
  REQUIRE(numbers[5] == 0);
  REQUIRE(cuda.UseDevice(1).ok());
  Launch(Increment, {.threads = 32}, stream, numbers);
  REQUIRE(cuda.LastError().ok());
  REQUIRE(numbers[5] == 1);
  REQUIRE(cuda.DestroyStream(stream).ok());
}

TEST_CASE("a device that is lost stays lost") {
  EmulatedCuda cuda;
  const CudaStream stream = *cuda.CreateStream();
  const CudaEvent event = *cuda.CreateEvent(false);
  cuda.FailCall("Synchronize", WithDeviceLost(absl::InternalError("an illegal address")));
  REQUIRE(IsDeviceLost(cuda.Synchronize(stream)));
  REQUIRE(IsDeviceLost(cuda.Synchronize(stream)));
  REQUIRE(IsDeviceLost(cuda.HasHappened(event).status()));
  REQUIRE(IsDeviceLost(cuda.FreeBytes().status()));
  REQUIRE(IsDeviceLost(cuda.LastError()));
  REQUIRE(IsDeviceLost(cuda.Malloc(64).status()));
  int numbers[32] = {};
  Launch(Increment, {.threads = 32}, stream, static_cast<int*>(numbers));
  REQUIRE(IsDeviceLost(cuda.LastError()));
  REQUIRE(numbers[5] == 0);
  REQUIRE(IsDeviceLost(cuda.DestroyStream(stream)));
}

}  // namespace tandem
