// The promises of CudaApi, checked on the emulator and, if there is one, on the machine's driver.
#include "common/device/cuda/cuda_api.h"

#include <algorithm>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/emulator/emulated_cuda.h"
#include "tests/support/units.h"

namespace tandem {
namespace {

using testing::kMiB;

// The emulator in all its ways first; then the driver, if this machine has a device.
std::vector<std::unique_ptr<CudaApi>> Implementations() {
  std::vector<std::unique_ptr<CudaApi>> all;
  for (const uint64_t late : {0, 1, 2, 3}) {
    all.push_back(std::make_unique<emulator::EmulatedCuda>(
        emulator::EmulatedCudaOptions{.late_streams = late}));
  }
  absl::StatusOr<std::unique_ptr<CudaApi>> driver = OpenCuda();
  if (driver.ok()) all.push_back(std::move(driver).value());
  for (const auto& cuda : all) REQUIRE(cuda->UseDevice(0).ok());
  return all;
}

std::vector<unsigned char> Bytes(CudaApi& cuda,
                                 CudaStream stream,
                                 const std::byte* from,
                                 int64_t n) {
  std::vector<unsigned char> bytes(static_cast<size_t>(n));
  REQUIRE(cuda.Copy(bytes.data(), from, n, stream).ok());
  REQUIRE(cuda.Synchronize(stream).ok());
  return bytes;
}

bool AllAre(const std::vector<unsigned char>& bytes, unsigned char value) {
  return std::all_of(bytes.begin(), bytes.end(), [=](unsigned char b) { return b == value; });
}

}  // namespace

TEST_CASE("a device describes itself, and one that is not there is refused") {
  for (const auto& cuda : Implementations()) {
    const int devices = *cuda->DeviceCount();
    REQUIRE(devices > 0);
    const CudaDeviceInfo info = *cuda->Describe(0);
    REQUIRE(!info.name.empty());
    REQUIRE(info.uuid.size() == 32);
    REQUIRE(info.compute_major >= 8);
    REQUIRE(info.shared_bytes_per_block >= 99 * 1024);
    REQUIRE(*cuda->FreeBytes() <= info.total_bytes);
    REQUIRE(cuda->Describe(devices).status().code() == absl::StatusCode::kFailedPrecondition);
    REQUIRE(cuda->UseDevice(devices).code() == absl::StatusCode::kFailedPrecondition);
    REQUIRE(cuda->LastError().ok());  // what was refused above is forgotten
  }
}

TEST_CASE("reserved addresses take pages, lose them and take others") {
  for (const auto& cuda : Implementations()) {
    const int64_t bytes = 2 * *cuda->Granularity();
    const CudaStream stream = *cuda->CreateStream();
    std::byte* const address = *cuda->ReserveAddresses(2 * bytes);
    for (int cycle = 0; cycle < 3; ++cycle) {
      const int64_t free = *cuda->FreeBytes();
      const CudaPages low = *cuda->CreatePages(bytes);
      const CudaPages high = *cuda->CreatePages(bytes);
      REQUIRE(cuda->MapPages(address, bytes, low).ok());
      REQUIRE(cuda->MapPages(address + bytes, bytes, high).ok());
      REQUIRE(*cuda->FreeBytes() <= free - 2 * bytes);
      REQUIRE(cuda->Fill(address, 0x5a, 2 * bytes, stream).ok());
      REQUIRE(AllAre(Bytes(*cuda, stream, address + bytes - 8, 16), 0x5a));
      REQUIRE(cuda->UnmapPages(address, bytes).ok());
      REQUIRE(cuda->UnmapPages(address + bytes, bytes).ok());
      REQUIRE(cuda->ReleasePages(low).ok());
      REQUIRE(cuda->ReleasePages(high).ok());
      REQUIRE(*cuda->FreeBytes() > free - bytes);  // others may take a little
    }
    REQUIRE(cuda->FreeAddresses(address, 2 * bytes).ok());
    REQUIRE(cuda->DestroyStream(stream).ok());
  }
}

TEST_CASE("more memory than the device has is refused, and a smaller piece still comes") {
  for (const auto& cuda : Implementations()) {
    const int64_t too_much = cuda->Describe(0)->total_bytes / (2 * kMiB) * (2 * kMiB) + 64 * kMiB;
    REQUIRE(cuda->CreatePages(too_much).status().code() == absl::StatusCode::kResourceExhausted);
    REQUIRE(cuda->Malloc(too_much).status().code() == absl::StatusCode::kResourceExhausted);
    REQUIRE(cuda->LastError().ok());
    std::byte* const memory = *cuda->Malloc(2 * kMiB);
    REQUIRE(cuda->Free(memory).ok());
  }
}

TEST_CASE("copies and fills of a stream happen in their order, over all kinds of memory") {
  for (const auto& cuda : Implementations()) {
    const CudaStream stream = *cuda->CreateStream();
    std::byte* const device = *cuda->Malloc(2 * kMiB);
    std::byte* const pinned = *cuda->AllocateHost(kMiB);
    std::vector<unsigned char> host(kMiB, 7);
    REQUIRE(cuda->RegisterHost(reinterpret_cast<std::byte*>(host.data()), kMiB).ok());
    std::fill(pinned, pinned + kMiB, std::byte{3});
    REQUIRE(cuda->Fill(device, 1, 2 * kMiB, stream).ok());
    REQUIRE(cuda->Copy(device, pinned, kMiB, stream).ok());
    REQUIRE(cuda->Copy(device + kMiB, device, kMiB / 2, stream).ok());
    REQUIRE(cuda->Copy(host.data(), device + kMiB, kMiB, stream).ok());
    REQUIRE(cuda->Synchronize(stream).ok());
    REQUIRE(std::count(host.begin(), host.end(), 3) == kMiB / 2);
    REQUIRE(std::count(host.begin(), host.end(), 1) == kMiB / 2);
    REQUIRE(cuda->UnregisterHost(reinterpret_cast<std::byte*>(host.data())).ok());
    REQUIRE(cuda->FreeHost(pinned).ok());
    REQUIRE(cuda->Free(device).ok());
    REQUIRE(cuda->DestroyStream(stream).ok());
  }
}

TEST_CASE("one stream waits for what another has recorded, and the time between is known") {
  for (const auto& cuda : Implementations()) {
    const CudaStream first = *cuda->CreateStream(), second = *cuda->CreateStream();
    const CudaEvent begin = *cuda->CreateEvent(false), end = *cuda->CreateEvent(false);
    REQUIRE(*cuda->HasHappened(begin));  // before its first record
    std::byte* const device = *cuda->Malloc(64 * kMiB);
    REQUIRE(cuda->Record(begin, first).ok());
    REQUIRE(cuda->Fill(device, 9, 64 * kMiB, first).ok());
    REQUIRE(cuda->Record(end, first).ok());
    REQUIRE(cuda->WaitEvent(second, end).ok());
    REQUIRE(AllAre(Bytes(*cuda, second, device + 63 * kMiB, kMiB), 9));
    REQUIRE(*cuda->HasHappened(end));
    REQUIRE(cuda->Synchronize(end).ok());
    REQUIRE(*cuda->SecondsBetween(begin, end) >= 0);
    REQUIRE(cuda->LastError().ok());
    for (const CudaEvent event : {begin, end}) REQUIRE(cuda->DestroyEvent(event).ok());
    for (const CudaStream stream : {first, second}) REQUIRE(cuda->DestroyStream(stream).ok());
    REQUIRE(cuda->Free(device).ok());
  }
}

TEST_CASE("captured work is done when its graph is launched, and each time again") {
  for (const auto& cuda : Implementations()) {
    const CudaStream stream = *cuda->CreateStream();
    std::byte* const device = *cuda->Malloc(2 * kMiB);
    REQUIRE(cuda->Fill(device, 1, 2 * kMiB, stream).ok());
    REQUIRE(cuda->BeginCapture(stream).ok());
    REQUIRE(cuda->Copy(device, device + kMiB, kMiB, stream).ok());
    REQUIRE(cuda->Fill(device + kMiB, 5, kMiB, stream).ok());
    const CudaGraph graph = *cuda->EndCapture(stream);
    REQUIRE(AllAre(Bytes(*cuda, stream, device, 2 * kMiB), 1));
    REQUIRE(cuda->LaunchGraph(graph, stream).ok());
    REQUIRE(AllAre(Bytes(*cuda, stream, device, kMiB), 1));
    REQUIRE(AllAre(Bytes(*cuda, stream, device + kMiB, kMiB), 5));
    REQUIRE(cuda->LaunchGraph(graph, stream).ok());
    REQUIRE(AllAre(Bytes(*cuda, stream, device, 2 * kMiB), 5));
    REQUIRE(cuda->DestroyGraph(graph).ok());
    REQUIRE(!cuda->EndCapture(stream).ok());
    REQUIRE(cuda->Free(device).ok());
    REQUIRE(cuda->DestroyStream(stream).ok());
  }
}

TEST_CASE("memory and shared events have handles that differ") {
  int with_handles = 0;
  for (const auto& cuda : Implementations()) {
    if (!cuda->Describe(0)->legacy_ipc) continue;
    ++with_handles;
    std::byte* const a = *cuda->Malloc(2 * kMiB);
    std::byte* const b = *cuda->Malloc(2 * kMiB);
    REQUIRE(*cuda->ExportMemory(a) == *cuda->ExportMemory(a));
    REQUIRE(!(*cuda->ExportMemory(a) == *cuda->ExportMemory(b)));
    const CudaEvent event = *cuda->CreateEvent(true);
    REQUIRE(cuda->ExportEvent(event).ok());
    REQUIRE(cuda->DestroyEvent(event).ok());
    REQUIRE(cuda->Free(a).ok());
    REQUIRE(cuda->Free(b).ok());
  }
  REQUIRE(with_handles > 0);
}

}  // namespace tandem
