// The driver's behaviour that regions, copies and graphs rely on equals the emulator's.
#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/device/cuda/cuda_context.h"
#include "common/device/cuda/cuda_regions.h"
#include "tests/gpu/gpu.h"

namespace tandem {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

struct Rig {
  Rig() : cuda(*testing::OpenGpu()), context(*CudaContext::Create(cuda.get(), 0)) {}
  std::vector<uint32_t> Read(const void* from, int64_t count) {
    std::vector<uint32_t> values(static_cast<size_t>(count), 0xdeadu);
    context->Read(values.data(), from, count * 4);
    return values;
  }
  int64_t Free() {
    REQUIRE(context->Synchronize().ok());
    return *cuda->FreeBytes();
  }
  std::unique_ptr<CudaApi> cuda;
  std::unique_ptr<CudaContext> context;
};

std::vector<uint32_t> Counting(int64_t count) {
  std::vector<uint32_t> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint32_t>(i * 2654435761u);
  return values;
}

}  // namespace

TEST_CASE("the device says what it is") {
  Rig rig;
  const CudaDeviceInfo info = *rig.cuda->Describe(0);
  INFO(info.name);
  REQUIRE(info.uuid.size() == 32);
  REQUIRE(info.compute_major >= 8);
  REQUIRE(info.total_bytes > 0);
  REQUIRE(info.virtual_memory);
}

TEST_CASE("a region's address stays over sleep and wake, and its bytes come and go") {
  Rig rig;
  Ledger ledger;
  auto region = *CudaRegion::Reserve(rig.context.get(), "kv_cache", 1024 * kMiB, &ledger);
  std::byte* const address = region->data();
  const int64_t asleep = rig.Free();
  for (int round = 0; round < 3; ++round) {
    REQUIRE(region->Map().ok());
    REQUIRE(region->data() == address);
    REQUIRE(region->ResidentBytes() == region->bytes());
    REQUIRE(asleep - rig.Free() >= region->bytes());
    // New pages are zero, whatever lay there before.
    for (const int64_t at : {int64_t{0}, 511 * kMiB, 1023 * kMiB}) {
      REQUIRE(rig.Read(address + at, 256) == std::vector<uint32_t>(256, 0));
      const std::vector<uint32_t> values = Counting(256);
      rig.context->Copy(address + at, values.data(), 1024);
      REQUIRE(rig.Read(address + at, 256) == values);
    }
    REQUIRE(region->Release().ok());
    REQUIRE(region->ResidentBytes() == 0);
  }
}

TEST_CASE("a region of several chunks keeps its addresses and bytes over a hundred cycles") {
  Rig rig;
  Ledger ledger;
  // 4, 4, 4 and 2 MiB.
  constexpr int64_t kBytes = 14 * kMiB;
  auto region = *CudaRegion::Reserve(rig.context.get(), "weights", kBytes, &ledger,
                                     {.chunk_bytes = 4 * kMiB});
  std::byte* const address = region->data();
  const std::vector<uint32_t> values = Counting(kBytes / 4);
  const int64_t asleep = rig.Free();
  for (int cycle = 0; cycle < 100; ++cycle) {
    REQUIRE(region->Map().ok());
    REQUIRE(region->data() == address);
    REQUIRE(BytesOf(ledger.Snapshot(), "weights") == region->bytes());
    // One copy over the ends of all chunks.
    rig.context->Copy(address, values.data(), kBytes);
    if (cycle % 25 == 0) {
      const bool same = rig.Read(address, kBytes / 4) == values;
      REQUIRE(same);
    }
    REQUIRE(region->Release().ok());
    REQUIRE(region->ResidentBytes() == 0);
  }
  REQUIRE(asleep - rig.Free() < region->bytes());
}

TEST_CASE("a wake that fails in the middle gives back what it had got, and the next one works") {
  Rig rig;
  constexpr int64_t kChunk = 16 * kMiB, kBytes = 8 * kChunk;
  const int64_t free = rig.Free();
  auto region =
      *CudaRegion::Reserve(rig.context.get(), "kv_cache", kBytes, nullptr, {.chunk_bytes = kChunk});
  std::byte* const address = region->data();
  // Somebody has all of the device but half of that.
  auto other = *CudaRegion::Reserve(rig.context.get(), "weights", free - kBytes / 2, nullptr);
  REQUIRE(other->Map().ok());
  const int64_t before = rig.Free();
  const absl::Status status = region->Map();
  INFO(status.ToString());
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(status.message().find("after 0 MiB") == std::string::npos);
  REQUIRE(!region->mapped());
  REQUIRE(region->ResidentBytes() == 0);
  REQUIRE(before - rig.Free() < kChunk);
  REQUIRE(other->Release().ok());
  REQUIRE(region->Map().ok());
  REQUIRE(region->data() == address);
  REQUIRE(rig.Read(address + kBytes - 1024, 256) == std::vector<uint32_t>(256, 0));
}

TEST_CASE("what sleeps in pinned memory wakes with its bits") {
  Rig rig;
  Ledger ledger;
  auto device = *CudaRegion::Reserve(rig.context.get(), "weights", 64 * kMiB, &ledger);
  auto host = *PinnedRegion::Reserve(rig.context.get(), "weights", 64 * kMiB, &ledger);
  REQUIRE(device->Map().ok());
  REQUIRE(host->Map().ok());
  const std::vector<uint32_t> values = Counting(16 * kMiB);
  rig.context->Copy(device->data(), values.data(), 64 * kMiB);
  rig.context->Copy(host->data(), device->data(), 64 * kMiB);
  REQUIRE(device->Release().ok());
  REQUIRE(device->Map().ok());
  rig.context->Copy(device->data(), host->data(), 64 * kMiB);
  REQUIRE(rig.Read(device->data(), 16 * kMiB) == values);
}

TEST_CASE("memory that the device does not have is refused and nothing is held") {
  Rig rig;
  const int64_t before = rig.Free();
  auto region = CudaRegion::Reserve(rig.context.get(), "kv_cache", before + 4096 * kMiB, nullptr);
  REQUIRE(region.ok());
  const absl::Status status = (*region)->Map();
  REQUIRE(status.code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(before - rig.Free() < 256 * kMiB);
}

TEST_CASE("a graph replays copies with what is uploaded now") {
  Rig rig;
  std::byte* const out = rig.context->Scratch(0, 4096);
  for (uint32_t round = 1; round <= 4; ++round) {
    const std::vector<uint32_t> values(64, round);
    rig.context->BeginGraph(7);
    const void* const uploaded = rig.context->Upload(values);
    if (rig.context->launching()) rig.context->Copy(out, uploaded, 256);
    REQUIRE(rig.context->EndGraph());
    REQUIRE(rig.Read(out, 64) == values);
  }
  REQUIRE(rig.context->graphs() == 1);
  REQUIRE(rig.context->Synchronize().ok());
}

TEST_CASE("a stream waits for what another recorded") {
  Rig rig;
  CudaApi& cuda = *rig.cuda;
  const CudaStream other = *cuda.CreateStream();
  const CudaEvent event = *cuda.CreateEvent(false);
  std::byte* const memory = *cuda.Malloc(256 * kMiB);
  for (unsigned char round = 1; round <= 8; ++round) {
    REQUIRE(cuda.Fill(memory, round, 256 * kMiB, rig.context->stream()).ok());
    REQUIRE(cuda.Record(event, rig.context->stream()).ok());
    REQUIRE(cuda.WaitEvent(other, event).ok());
    uint32_t last = 0;
    REQUIRE(cuda.Copy(&last, memory + 256 * kMiB - 4, 4, other).ok());
    REQUIRE(cuda.Synchronize(other).ok());
    REQUIRE(*cuda.HasHappened(event));
    REQUIRE(last == round * 0x01010101u);
  }
  REQUIRE(cuda.Free(memory).ok());
  REQUIRE(cuda.DestroyEvent(event).ok());
  REQUIRE(cuda.DestroyStream(other).ok());
}

}  // namespace tandem
