#include "common/backend/backend.h"

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/strip.h>

#include "common/backend/cpu_backend.h"
#include "common/backend/cuda_backend.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/device/device_memory.h"

namespace tandem {
namespace {

constexpr char kCudaPrefix[] = "cuda:";

// The 2 of "cuda:2".
absl::StatusOr<int> GpuIndex(const std::string& place) {
  absl::string_view number = place;
  int index = -1;
  if (!absl::ConsumePrefix(&number, kCudaPrefix) || !absl::SimpleAtoi(number, &index) ||
      index < 0) {
    return InvalidArgument("--device {} is not a GPU; start the worker with --device cuda:<number>",
                           place);
  }
  return index;
}

// The error for any problem with the GPU: which key asked for it, and how to continue.
absl::Status OfKey(const absl::Status& status) { return Annotate(status, "trainer.device=cuda"); }

absl::StatusOr<std::unique_ptr<Backend>> MakeGpu(const std::string& place) {
  TANDEM_ASSIGN_OR_RETURN(const int index, GpuIndex(place));
  TANDEM_ASSIGN_OR_RETURN(auto api, OpenCuda());
  return MakeCudaBackend(std::move(api), index);
}

}  // namespace

void PinDeviceLibraries() { PinCudaLibraries(); }

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options) {
  if (options.device != "cuda") {
    return MakeCpuBackend(std::make_shared<ThreadPool>(options.threads, options.cores));
  }
  absl::StatusOr<std::unique_ptr<Backend>> gpu = MakeGpu(options.place);
  if (!gpu.ok()) return OfKey(gpu.status());
  LogInfo("device: {}", (*gpu)->device()->name());
  return gpu;
}

absl::StatusOr<DeviceIdentity> IdentifyDevice(const std::string& place) {
  if (!absl::StartsWith(place, kCudaPrefix)) {
    return DeviceIdentity{.memory_bytes = MemoryLimitBytes()};
  }
  TANDEM_ASSIGN_OR_RETURN(const int index, GpuIndex(place));
  const auto api = OpenCuda();
  if (!api.ok()) return OfKey(api.status());
  const absl::StatusOr<CudaDeviceInfo> info = (*api)->Describe(index);
  if (!info.ok()) return OfKey(info.status());
  return DeviceIdentity{.memory_bytes = info->total_bytes, .uuid = info->uuid};
}

}  // namespace tandem
