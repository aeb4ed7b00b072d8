#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/device/cuda/cuda_device.h"
#include "common/device/cuda/cuda_regions.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/emulator/emulator.h"
#include "tests/support/bytes_in.h"

namespace tandem {
namespace {

using Calls = std::vector<std::string>;
using emulator::EmulatedCuda;

constexpr int64_t kFloats = 1000;  // of each array
constexpr int64_t kWindowFloats = 192;

// moment += 1, master += moment.
__global__ void Update(float* master, float* moment, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    moment[i] += 1;
    master[i] += moment[i];
  }
}

// Two arrays at home, cut into six windows, the last one shorter.
struct OffloadStreamRig {
  explicit OffloadStreamRig(uint64_t late = 0)
      : cuda({.total_bytes = int64_t{64} << 20, .late_streams = late}),
        context(*CudaContext::Create(&cuda, 0)) {
    for (const char* tag : {"master", "optimizer"}) {
      homes.push_back(*PinnedRegion::Reserve(context.get(), tag, kFloats * 4, &ledger));
      REQUIRE(homes.back()->Map().ok());
    }
    for (int64_t i = 0; i < kFloats; ++i) {
      at(0)[i] = static_cast<float>(i);
      at(1)[i] = static_cast<float>(1000 * i);
    }
    for (int64_t first = 0; first < kFloats; first += kWindowFloats) {
      windows.push_back({first * 4, std::min(kWindowFloats, kFloats - first) * 4});
    }
    cuda.ForgetCalls();
  }
  float* at(size_t array) const { return reinterpret_cast<float*>(homes[array]->data()); }
  absl::StatusOr<std::unique_ptr<OffloadStream>> Create() {
    return CudaOffloadStream::Create(
        context.get(), {{"master", homes[0]->data()}, {"optimizer", homes[1]->data()}}, windows,
        &ledger);
  }
  // All windows through Update; the first error.
  absl::Status Pass(OffloadStream& stream) {
    for (size_t window = 0; window < windows.size(); ++window) {
      const auto places = stream.Open(window);
      if (!places.ok()) return places.status();
      Launch(Update, {.grid_x = 1, .threads = 32}, context->stream(),
             reinterpret_cast<float*>((*places)[0]), reinterpret_cast<float*>((*places)[1]),
             windows[window].bytes / 4);
      const absl::Status closed = stream.Close(window);
      if (!closed.ok()) return closed;
    }
    return stream.Finish();
  }

  EmulatedCuda cuda;
  Ledger ledger;
  std::unique_ptr<CudaContext> context;
  std::vector<std::unique_ptr<MemoryRegion>> homes;
  std::vector<OffloadStream::Window> windows;
};

}  // namespace

TEST_CASE("every window comes in, is worked on and goes home, whichever streams are late") {
  // Bits: the context's stream, and those of the two passes, in and out.
  const uint64_t late = GENERATE(range(0, 8));
  OffloadStreamRig rig(late | late >> 1 << 3);
  for (int pass = 1; pass <= 2; ++pass) {
    const auto stream = *rig.Create();
    REQUIRE(testing::BytesIn(rig.ledger.Snapshot(), Location::kDevice) == 4 * (int64_t{2} << 20));
    REQUIRE(rig.Pass(*stream).ok());
    int64_t wrong = 0;
    for (int64_t i = 0; i < kFloats; ++i) {
      const auto moment = static_cast<float>(1000 * i + pass);
      const float master =
          static_cast<float>(i) + static_cast<float>(1000 * i + 1) + (pass == 2 ? moment : 0);
      wrong += rig.at(1)[i] != moment || rig.at(0)[i] != master ? 1 : 0;
    }
    REQUIRE(wrong == 0);
  }
  REQUIRE(testing::BytesIn(rig.ledger.Snapshot(), Location::kDevice) == 0);
  REQUIRE(rig.cuda.used_bytes() == 0);
}

TEST_CASE("the host waits for no window, and the next ones come in before a window is closed") {
  OffloadStreamRig rig;
  const auto stream = *rig.Create();
  const Calls in = {"WaitEvent", "Copy", "Copy", "Record"};
  Calls calls = rig.cuda.calls();
  Calls twice = in;
  twice.insert(twice.end(), in.begin(), in.end());
  REQUIRE(Calls(calls.end() - 8, calls.end()) == twice);
  rig.cuda.ForgetCalls();
  REQUIRE(stream->Open(0).ok());
  REQUIRE(stream->Open(1).ok());
  REQUIRE(rig.cuda.calls() == Calls{"WaitEvent", "WaitEvent"});
  rig.cuda.ForgetCalls();
  REQUIRE(stream->Close(0).ok());
  Calls out = {"Record", "WaitEvent", "Copy", "Copy", "Record"};
  out.insert(out.end(), in.begin(), in.end());
  REQUIRE(rig.cuda.calls() == out);
  rig.cuda.ForgetCalls();
  REQUIRE(stream->Finish().ok());
  REQUIRE(rig.cuda.calls() == Calls{"Synchronize"});
}

TEST_CASE("whichever call fails, the error comes through and nothing is left on the device") {
  const std::string call =
      GENERATE(as<std::string>(), "ReserveAddresses", "CreatePages", "MapPages", "Fill",
               "CreateStream", "CreateEvent", "WaitEvent", "Copy", "Record", "Synchronize");
  const int skipped = GENERATE(0, 1, 3, 5);
  OffloadStreamRig rig;
  rig.cuda.FailCall(call, absl::Status(absl::StatusCode::kInternal, "injected"), skipped);
  bool reached = false;
  {
    auto stream = rig.Create();
    const absl::Status status = stream.ok() ? rig.Pass(**stream) : stream.status();
    const Calls calls = rig.cuda.calls();
    reached = std::count(calls.begin(), calls.end(), call) > skipped;
    INFO(call << " " << skipped << ": " << status.ToString());
    REQUIRE(status.ok() != reached);
    if (reached) REQUIRE(status.message().find("injected") != std::string::npos);
  }
  REQUIRE(testing::BytesIn(rig.ledger.Snapshot(), Location::kDevice) == 0);
  REQUIRE(rig.cuda.used_bytes() == 0);
  if (!reached) return;
  const auto next = rig.Create();
  REQUIRE(next.ok());
  REQUIRE(rig.Pass(**next).ok());
}

TEST_CASE("no arrays or no windows: nothing happens") {
  OffloadStreamRig rig;
  const auto without_arrays =
      *CudaOffloadStream::Create(rig.context.get(), {}, rig.windows, &rig.ledger);
  REQUIRE(without_arrays->Open(0)->empty());
  REQUIRE(without_arrays->Close(0).ok());
  REQUIRE(without_arrays->Finish().ok());
  const auto without_windows = *CudaOffloadStream::Create(
      rig.context.get(), {{"master", rig.homes[0]->data()}}, {}, &rig.ledger);
  REQUIRE(without_windows->Finish().ok());
  REQUIRE(rig.cuda.calls().empty());
}

}  // namespace tandem
