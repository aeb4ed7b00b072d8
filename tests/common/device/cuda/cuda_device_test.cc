#include "common/device/cuda/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/emulator/emulated_cuda.h"
#include "tests/support/bytes_in.h"
#include "tests/support/units.h"

namespace tandem {
namespace {

using testing::kMiB;

}  // namespace

TEST_CASE("what the driver says of a device comes with every snapshot, on any thread") {
  emulator::EmulatedCuda cuda({.total_bytes = 64 * kMiB});
  CudaDevice device(*CudaContext::Create(&cuda, 0));
  Ledger ledger;
  ledger.SetDriverReader([&] { return device.Memory(); });
  REQUIRE(!device.is_host());
  const auto region = *device.Reserve("weights", 6 * kMiB, &ledger);
  REQUIRE(region->Map().ok());
  std::byte* const elsewhere = *cuda.Malloc(kMiB);  // in no ledger
  LedgerSnapshot snapshot;
  std::thread([&] { snapshot = ledger.Snapshot(); }).join();
  REQUIRE(snapshot.driver_total_bytes == 64 * kMiB);
  REQUIRE(snapshot.driver_free_bytes == 57 * kMiB);
  REQUIRE(snapshot.device_bytes == 6 * kMiB);
  REQUIRE(snapshot.peak_on_device() == 6 * kMiB);
  REQUIRE(cuda.Free(elsewhere).ok());
  REQUIRE(region->Release().ok());
  REQUIRE(ledger.Snapshot().driver_free_bytes == 64 * kMiB);
}

TEST_CASE("arrays in host memory stream through either device") {
  emulator::EmulatedCuda cuda({.total_bytes = 64 * kMiB, .late_streams = 7});
  CudaDevice gpu(*CudaContext::Create(&cuda, 0));
  for (Device* const device : {static_cast<Device*>(&gpu), HostDevice()}) {
    Ledger ledger;
    const auto home = *device->ReserveHost("optimizer", 2 * kMiB, &ledger);
    REQUIRE(home->Map().ok());
    std::memset(home->data(), 5, 1000);
    const std::vector<OffloadStream::Window> windows = {{0, 400}, {400, 400}, {800, 200}};
    const auto stream = *device->StreamThrough({{"optimizer", home->data()}}, windows, &ledger);
    for (size_t window = 0; window < windows.size(); ++window) {
      std::byte* const place = (*stream->Open(window))[0];
      // All but its first hundred bytes.
      device->Zero(place + 100, windows[window].bytes - 100);
      REQUIRE(stream->Close(window).ok());
    }
    REQUIRE(stream->Finish().ok());
    for (const auto& [offset, bytes] : windows) {
      REQUIRE(std::count(home->data() + offset, home->data() + offset + bytes, std::byte{5}) ==
              100);
      REQUIRE(home->data()[offset + 99] == std::byte{5});
    }
  }
}

TEST_CASE("memory that is shared can be exported, is zero, and counts while it is held") {
  emulator::EmulatedCuda cuda({.total_bytes = 64 * kMiB, .late_streams = 1});
  emulator::EmulatedCuda other({.total_bytes = 64 * kMiB, .process = -1});
  Ledger ledger;
  {
    CudaDevice device(*CudaContext::Create(&cuda, 0));
    ledger.SetDriverReader([&] { return device.Memory(); });
    auto memory = *device.ReserveShareable("weights", 5 * kMiB, &ledger);
    REQUIRE(memory->bytes() == 6 * kMiB);  // a handle passes whole blocks of 2 MiB on
    REQUIRE(memory->fd() == -1);
    REQUIRE(BytesOf(ledger.Snapshot(), "weights") == 6 * kMiB);
    REQUIRE(ledger.Snapshot().device_bytes == 6 * kMiB);
    REQUIRE(ledger.Snapshot().driver_free_bytes == 58 * kMiB);
    REQUIRE(device.Synchronize().ok());
    const std::vector<std::byte> zeros(6 * kMiB);
    REQUIRE(std::memcmp(memory->data(), zeros.data(), zeros.size()) == 0);
    std::byte* const opened = *other.OpenMemory(*cuda.ExportMemory(memory->data()));
    device.Copy(memory->data() + 5 * kMiB, "seen", 5);
    REQUIRE(device.Synchronize().ok());
    REQUIRE(std::memcmp(opened + 5 * kMiB, "seen", 5) == 0);

    // Another process has it open: it is not freed, and the next that takes as much gets it.
    std::byte* const address = memory->data();
    memory.reset();
    REQUIRE(ledger.Snapshot().device_bytes == 0);
    REQUIRE(cuda.used_bytes() == 6 * kMiB);
    const auto smaller = *device.ReserveShareable("weights", 3 * kMiB, &ledger);
    REQUIRE(smaller->data() != address);
    const auto same = *device.ReserveShareable("weights", 6 * kMiB, nullptr);
    REQUIRE(same->data() == address);
    REQUIRE(device.Synchronize().ok());
    REQUIRE(std::memcmp(opened, zeros.data(), zeros.size()) == 0);
    REQUIRE(cuda.used_bytes() == 10 * kMiB);
    REQUIRE(other.CloseMemory(opened).ok());
  }
  REQUIRE(cuda.used_bytes() == 0);
}

TEST_CASE("memory to share that the device does not have is refused by name") {
  emulator::EmulatedCuda cuda({.total_bytes = 8 * kMiB});
  CudaDevice device(*CudaContext::Create(&cuda, 0));
  Ledger ledger;
  const auto refused = device.ReserveShareable("weights", 10 * kMiB, &ledger);
  REQUIRE(absl::IsResourceExhausted(refused.status()));
  const std::string text(refused.status().message());
  REQUIRE(text.find("memory weights: cannot get 10485760 bytes (10 MiB)") != std::string::npos);
  REQUIRE(text.find("8 MiB are free") != std::string::npos);
  REQUIRE(absl::IsInvalidArgument(device.ReserveShareable("weights", 0, &ledger).status()));
  cuda.FailCall("Fill", absl::InternalError("lost"));
  REQUIRE(absl::IsInternal(device.ReserveShareable("weights", kMiB, &ledger).status()));
  REQUIRE(ledger.Snapshot().device_bytes == 0);
  REQUIRE(device.ReserveShareable("weights", kMiB, &ledger).ok());
  REQUIRE(cuda.used_bytes() == 2 * kMiB);
}

TEST_CASE("memory of the host that is shared is mapped by its descriptor") {
  Ledger ledger;
  auto memory = *HostDevice()->ReserveShareable("weights", kMiB, &ledger);
  REQUIRE(memory->bytes() == 2 * kMiB);
  REQUIRE(memory->fd() >= 0);
  REQUIRE(BytesOf(ledger.Snapshot(), "weights") == 2 * kMiB);
  memory.reset();
  REQUIRE(BytesOf(ledger.Snapshot(), "weights") == 0);
}

TEST_CASE("pinned memory of a device is the host's") {
  emulator::EmulatedCuda cuda({.total_bytes = 64 * kMiB});
  CudaDevice device(*CudaContext::Create(&cuda, 0));
  Ledger ledger;
  ledger.SetDriverReader([&] { return device.Memory(); });
  const auto region = *device.ReserveHost("optimizer", 6 * kMiB, &ledger);
  REQUIRE(region->Map().ok());
  const LedgerSnapshot snapshot = ledger.Snapshot();
  REQUIRE(testing::BytesIn(snapshot, Location::kHost) == 6 * kMiB);
  REQUIRE(snapshot.peak_on_device() == 0);
  REQUIRE(snapshot.memory_peak_bytes == 6 * kMiB);
  REQUIRE(snapshot.driver_free_bytes == 64 * kMiB);
}

}  // namespace tandem
