#include "tests/gpu/model_bench/device_peaks.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/status.h"
#include "tests/gpu/model_bench/stopwatch.h"

namespace tandem::testing {
namespace {

constexpr int kRepeats = 5;
constexpr int kCopies = 4;  // of one repeat

struct DataSheet {
  const char* part;  // of the driver's name of the device
  double gigabytes;  // per second
  double teraflops;  // bf16, dense
};

// The first whose part is in the name; those that contain another one's come before it.
constexpr DataSheet kSheets[] = {
    {"GH200 144G", 4900, 989},     {"GH200", 4000, 989},          {"B200", 7700, 2250},
    {"H200 NVL", 4800, 835},       {"H200", 4800, 989},           {"H100 NVL", 3900, 835},
    {"H100 PCIe", 2000, 756},      {"H100", 3350, 989},           {"H20", 4000, 148},
    {"A100-SXM4-80GB", 2039, 312}, {"A100 80GB PCIe", 1935, 312}, {"A100", 1555, 312}};

struct Capability {
  int major, minor;
  const char* part;
};
constexpr Capability kFirstOf[] = {{8, 0, "A100"}, {9, 0, "H100"}, {10, 0, "B200"}};

DevicePeaks PeaksOf(const DataSheet& sheet, const std::string& source) {
  return {source, sheet.gigabytes * 1e9, sheet.teraflops * 1e12};
}

}  // namespace

DevicePeaks NominalPeaks(const CudaDeviceInfo& info) {
  for (const DataSheet& sheet : kSheets) {
    if (info.name.find(sheet.part) == std::string::npos) continue;
    return PeaksOf(sheet, fmt::format("NVIDIA's figures for {}", sheet.part));
  }
  for (const Capability& first : kFirstOf) {
    if (info.compute_major != first.major || info.compute_minor != first.minor) continue;
    const auto* const sheet =
        std::find_if(std::begin(kSheets), std::end(kSheets),
                     [&](const DataSheet& entry) { return std::string(entry.part) == first.part; });
    return PeaksOf(*sheet,
                   fmt::format("NVIDIA's figures for {}, the first of compute capability {}.{}: "
                               "{} is not in the table",
                               first.part, first.major, first.minor, info.name));
  }
  return {fmt::format("no figures for {} of compute capability {}.{}", info.name,
                      info.compute_major, info.compute_minor),
          0, 0};
}

absl::StatusOr<double> CopyBandwidth(Device* device, int64_t bytes) {
  TANDEM_ASSIGN_OR_RETURN(const auto from, device->Reserve("copy", bytes, nullptr));
  TANDEM_ASSIGN_OR_RETURN(const auto to, device->Reserve("copy", bytes, nullptr));
  TANDEM_RETURN_IF_ERROR(from->Map());
  TANDEM_RETURN_IF_ERROR(to->Map());
  double best = 1e30;
  for (int repeat = 0; repeat <= kRepeats; ++repeat) {
    TANDEM_RETURN_IF_ERROR(device->Synchronize());
    const Stopwatch watch;
    for (int copy = 0; copy < kCopies; ++copy) device->Copy(to->data(), from->data(), bytes);
    TANDEM_RETURN_IF_ERROR(device->Synchronize());
    if (repeat > 0) best = std::min(best, watch.Seconds());
  }
  return 2.0 * kCopies * static_cast<double>(bytes) / best;
}

}  // namespace tandem::testing
