#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/device/cuda/cuda_device.h"
#include "tests/emulator/emulated_cuda.h"

namespace tandem {
namespace {

using emulator::EmulatedCuda;

constexpr int64_t kBytes = 1000;

// A piece of pinned memory with fives, and one on the device with zeros.
struct UploadStreamRig {
  explicit UploadStreamRig(uint64_t late)
      : cuda(*new EmulatedCuda({.late_streams = late})), api(&cuda) {
    device = std::make_unique<CudaDevice>(*CudaContext::Create(&cuda, 0));
    host = *device->ReserveHost("reference", kBytes, nullptr);
    there = *device->Reserve("gather", kBytes, nullptr);
    REQUIRE(host->Map().ok());
    REQUIRE(there->Map().ok());
    REQUIRE(device->Synchronize().ok());
    std::memset(host->data(), 5, kBytes);
  }
  int64_t Fives() const { return std::count(there->data(), there->data() + kBytes, std::byte{5}); }
  int64_t FivesRead() {
    std::vector<std::byte> read(kBytes);
    device->Copy(read.data(), there->data(), kBytes);
    REQUIRE(device->Synchronize().ok());
    return std::count(read.begin(), read.end(), std::byte{5});
  }

  EmulatedCuda& cuda;
  std::unique_ptr<CudaApi> api;
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<MemoryRegion> host, there;
};

}  // namespace

TEST_CASE("an upload comes after the work before Begin and before the work after Join") {
  // Bits: the context's stream and the uploads'.
  const uint64_t late = GENERATE(range(0, 4));
  UploadStreamRig rig(late);
  const auto uploads = *rig.device->OpenUploads();
  rig.device->Zero(rig.there->data(), kBytes);
  REQUIRE(uploads->Begin().ok());
  REQUIRE(uploads->Copy(rig.there->data(), rig.host->data(), kBytes).ok());
  REQUIRE(uploads->Join().ok());
  REQUIRE(rig.FivesRead() == kBytes);
  // Again, over what is there, by the same events.
  rig.device->Zero(rig.there->data(), kBytes);
  REQUIRE(uploads->Begin().ok());
  REQUIRE(uploads->Copy(rig.there->data() + 100, rig.host->data(), 300).ok());
  REQUIRE(uploads->Copy(rig.there->data(), rig.host->data(), 0).ok());
  REQUIRE(uploads->Join().ok());
  REQUIRE(rig.FivesRead() == 300);
}

TEST_CASE("work between Begin and Join does not wait for the uploads") {
  UploadStreamRig rig(2);
  const auto uploads = *rig.device->OpenUploads();
  REQUIRE(uploads->Begin().ok());
  REQUIRE(uploads->Copy(rig.there->data(), rig.host->data(), kBytes).ok());
  REQUIRE(rig.device->Synchronize().ok());
  REQUIRE(rig.Fives() == 0);
  REQUIRE(uploads->Join().ok());
  REQUIRE(rig.device->Synchronize().ok());
  REQUIRE(rig.Fives() == kBytes);
}

TEST_CASE("uploads that end unjoined are waited for, and whichever call fails says so") {
  for (const std::string call : {"CreateStream", "CreateEvent", "Record", "WaitEvent", "Copy"}) {
    INFO(call);
    UploadStreamRig rig(2);
    {
      const auto uploads = *rig.device->OpenUploads();
      REQUIRE(uploads->Begin().ok());
      REQUIRE(uploads->Copy(rig.there->data(), rig.host->data(), kBytes).ok());
    }
    REQUIRE(rig.Fives() == kBytes);
    rig.cuda.FailCall(call, absl::InternalError("injected"));
    const auto uploads = rig.device->OpenUploads();
    absl::Status status = uploads.status();
    if (status.ok()) status = (*uploads)->Begin();
    if (status.ok()) status = (*uploads)->Copy(rig.there->data(), rig.host->data(), kBytes);
    if (status.ok()) status = (*uploads)->Join();
    REQUIRE(status.message() == "injected");
  }
}

}  // namespace tandem
