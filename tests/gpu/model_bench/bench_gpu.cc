#include "tests/gpu/model_bench/bench_gpu.h"

#include <cstdio>
#include <utility>

#include "common/backend/cuda_backend.h"
#include "common/base/status.h"

namespace tandem::testing {
namespace {

double Gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

absl::StatusOr<BenchGpu> OpenBenchGpu(std::unique_ptr<CudaApi> cuda) {
  BenchGpu gpu;
  TANDEM_ASSIGN_OR_RETURN(gpu.info, cuda->Describe(0));
  gpu.peaks = NominalPeaks(gpu.info);
  TANDEM_ASSIGN_OR_RETURN(gpu.backend, MakeCudaBackend(std::move(cuda), 0));
  std::printf("%s\nnominal: %.0f GB/s and %.0f TFLOP/s dense bf16, %s\n",
              gpu.device()->name().c_str(), gpu.peaks.bytes_per_second * 1e-9,
              gpu.peaks.bf16_flops * 1e-12, gpu.peaks.source.c_str());
  return gpu;
}

absl::Status CheckFits(const BenchGpu& gpu, const std::string& what, int64_t bytes) {
  const DriverMemory memory = gpu.device()->Memory();
  const int64_t needed = bytes + kOtherBytes;
  if (needed <= memory.free) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kUnavailable,
                    "{} needs {:.1f} GiB, and {:.1f} of the device's {:.1f} GiB are free", what,
                    Gib(needed), Gib(memory.free), Gib(memory.total));
}

}  // namespace tandem::testing
