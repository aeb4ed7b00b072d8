// Figures of the memory and of the links, for gpu_check.sh: a line "figure NAME VALUE UNIT" each.
//   gpu_bench copy|sleep|staged|context [MIB]    MIB: how much at once; targets mean the default
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/comm/cuda/add.h"
#include "common/device/cuda/cuda_regions.h"
#include "tests/gpu/device_ranks.h"
#include "tests/gpu/gpu.h"

namespace tandem {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int kRepeats = 5;

void Figure(const char* name, double value, const char* unit) {
  std::printf("figure %s %.4g %s\n", name, value, unit);
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The shortest of several times, the device's work included.
absl::StatusOr<double> Best(CudaContext& context, const std::function<absl::Status()>& work) {
  double best = 1e30;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    TANDEM_RETURN_IF_ERROR(context.Synchronize());
    const double begin = Now();
    TANDEM_RETURN_IF_ERROR(work());
    TANDEM_RETURN_IF_ERROR(context.Synchronize());
    best = std::min(best, Now() - begin);
  }
  return best;
}

absl::Status Copy(CudaApi* cuda, int64_t mib) {
  TANDEM_ASSIGN_OR_RETURN(auto context, CudaContext::Create(cuda, 0));
  const int64_t bytes = mib * kMiB;
  TANDEM_ASSIGN_OR_RETURN(std::byte* const one, cuda->Malloc(bytes));
  TANDEM_ASSIGN_OR_RETURN(std::byte* const other, cuda->Malloc(bytes));
  TANDEM_ASSIGN_OR_RETURN(std::byte* const host, cuda->AllocateHost(bytes));
  const auto gbps = [&](const char* name, std::byte* to, std::byte* from) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const double seconds, Best(*context, [&] {
                              context->Copy(to, from, bytes);
                              return absl::OkStatus();
                            }));
    Figure(name, static_cast<double>(bytes) * 1e-9 / seconds, "GB/s");
    return absl::OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(gbps("device_copy_gbps", one, other));
  TANDEM_RETURN_IF_ERROR(gbps("upload_gbps", one, host));
  TANDEM_RETURN_IF_ERROR(gbps("download_gbps", host, one));
  TANDEM_RETURN_IF_ERROR(cuda->FreeHost(host));
  TANDEM_RETURN_IF_ERROR(cuda->Free(other));
  return cuda->Free(one);
}

// A KV pool that sleeps, drops its pages, and wakes, zeroed, at its old addresses.
absl::Status Sleep(CudaApi* cuda, int64_t mib) {
  TANDEM_ASSIGN_OR_RETURN(auto context, CudaContext::Create(cuda, 0));
  TANDEM_ASSIGN_OR_RETURN(const int64_t free, cuda->FreeBytes());
  const int64_t bytes = mib * kMiB;
  if (bytes > free) {
    return MakeStatus(absl::StatusCode::kUnavailable, "{} MiB of the device are free, not {}",
                      free / kMiB, mib);
  }
  TANDEM_ASSIGN_OR_RETURN(auto region,
                          CudaRegion::Reserve(context.get(), "kv_cache", bytes, nullptr));
  std::byte* const address = region->data();
  TANDEM_RETURN_IF_ERROR(region->Map());
  double sleep = 1e30, wake = 1e30;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    context->Copy(region->data() + bytes - 8, "not zero", 8);
    TANDEM_RETURN_IF_ERROR(context->Synchronize());
    const double begin = Now();
    TANDEM_RETURN_IF_ERROR(region->Release());
    const double asleep = Now();
    TANDEM_RETURN_IF_ERROR(region->Map());
    TANDEM_RETURN_IF_ERROR(context->Synchronize());
    wake = std::min(wake, Now() - asleep);
    sleep = std::min(sleep, asleep - begin);
    uint64_t last = 1;
    context->Read(&last, region->data() + bytes - 8, 8);
    if (last != 0 || region->data() != address) return Internal("a pool that woke is not zero");
  }
  Figure("sleep_s", sleep, "s");
  Figure("wake_s", wake, "s");
  Figure("sleep_wake_s", sleep + wake, "s");
  return context->Synchronize();
}

// Two ranks on one GPU reduce-scatter what both have.
absl::Status Staged(CudaApi* cuda, int64_t mib) {
  const int64_t count = mib * kMiB / 8;  // floats of each rank's half
  double seconds = 0;
  const auto results =
      testing::RunDeviceRanks(cuda, nullptr, 1, 2, [&](testing::DeviceRank rank) -> absl::Status {
        auto* const full = reinterpret_cast<float*>(rank.context.Scratch(0, 8 * count));
        auto* const mine = reinterpret_cast<float*>(rank.context.Scratch(1, 4 * count));
        rank.context.Zero(full, 8 * count);
        rank.context.Zero(mine, 4 * count);
        TANDEM_ASSIGN_OR_RETURN(
            const double best, Best(rank.context, [&] {
              return rank.group.ReduceScatterSum(full, {count, count}, mine, Accumulate::kAdd);
            }));
        if (rank.group.rank() == 0) seconds = best;
        return absl::OkStatus();
      });
  for (const absl::Status& status : results) TANDEM_RETURN_IF_ERROR(status);
  Figure("staged_gbps", static_cast<double>(8 * count) * 1e-9 / seconds, "GB/s");
  return absl::OkStatus();
}

// What the driver takes for this process, and for a kernel of a recorded step: the figures that the
// memory plan estimates (common/memory/cuda_memory.h). Of a device that nobody else uses.
absl::Status Context(CudaApi* cuda, int64_t mib) {
  constexpr int kKernels = 500, kGraphs = 4;
  TANDEM_ASSIGN_OR_RETURN(auto context, CudaContext::Create(cuda, 0));
  TANDEM_ASSIGN_OR_RETURN(int64_t free, cuda->FreeBytes());
  Figure("context_mib", static_cast<double>(context->info().total_bytes - free) / kMiB, "MiB");
  TANDEM_ASSIGN_OR_RETURN(std::byte* const memory, cuda->Malloc(mib * kMiB));
  auto* const values = reinterpret_cast<float*>(memory);
  // The first launch loads the kernel.
  AddFloats(values, values, 256, context->stream());
  TANDEM_RETURN_IF_ERROR(context->Synchronize());
  TANDEM_ASSIGN_OR_RETURN(free, cuda->FreeBytes());
  std::vector<CudaGraph> graphs;
  for (int graph = 0; graph < kGraphs; ++graph) {
    TANDEM_RETURN_IF_ERROR(cuda->BeginCapture(context->stream()));
    for (int i = 0; i < kKernels; ++i) AddFloats(values, values, 256, context->stream());
    TANDEM_ASSIGN_OR_RETURN(graphs.emplace_back(), cuda->EndCapture(context->stream()));
    TANDEM_RETURN_IF_ERROR(cuda->LaunchGraph(graphs.back(), context->stream()));
  }
  TANDEM_RETURN_IF_ERROR(context->Synchronize());
  TANDEM_ASSIGN_OR_RETURN(const int64_t left, cuda->FreeBytes());
  Figure("graph_kernel_kib", static_cast<double>(free - left) / 1024 / (kKernels * kGraphs), "KiB");
  for (const CudaGraph graph : graphs) TANDEM_RETURN_IF_ERROR(cuda->DestroyGraph(graph));
  return cuda->Free(memory);
}

absl::Status Run(CudaApi* cuda, const std::string& what, int64_t mib) {
  if (what == "copy") return Copy(cuda, mib > 0 ? mib : 2048);
  if (what == "sleep") return Sleep(cuda, mib > 0 ? mib : 60 * 1024);
  if (what == "staged") return Staged(cuda, mib > 0 ? mib : 512);
  if (what == "context") return Context(cuda, mib > 0 ? mib : 2);
  return InvalidArgument("usage: gpu_bench copy|sleep|staged|context [MIB]");
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const auto gpu = tandem::testing::OpenGpu();
  if (!gpu.ok()) {
    std::printf("no GPU: %s\n", std::string(gpu.status().message()).c_str());
    return tandem::testing::kNoGpu;
  }
  const absl::Status status = tandem::Run(gpu->get(), argc > 1 ? argv[1] : "",
                                          argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 0);
  if (status.ok()) return 0;
  if (absl::IsUnavailable(status)) return tandem::testing::Skipped(std::string(status.message()));
  std::printf("%s\n", status.ToString().c_str());
  return 1;
}
