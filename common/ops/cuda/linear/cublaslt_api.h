// What the backend asks of cuBLASLt, as one seam: the library, looked up at run time
// (cublaslt_library.cc), or a test's stand-in. No CUDA header is needed to use it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/cuda/launch.h"
#include "common/ops/cuda/linear/gemm.h"

namespace tandem {

// One way of the library's to compute a product: which kernel, tile, stages and so on.
struct LtAlgorithm {
  std::array<uint64_t, 8> opaque{};  // cublasLtMatmulAlgo_t
  int id = 0;                        // CUBLASLT_ALGO_CONFIG_ID
  int tile = 0;                      // CUBLASLT_ALGO_CONFIG_TILE_ID
  int split_k = 1;                   // CUBLASLT_ALGO_CONFIG_SPLITK_NUM
  int reduction = 0;                 // CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME; 0: none
  int64_t workspace_bytes = 0;
  friend bool operator==(const LtAlgorithm&, const LtAlgorithm&) = default;
};

// Not thread-safe. Errors: InvalidArgument where an algorithm cannot compute a product,
// ResourceExhausted where the library could not allocate, Internal everything else, with the
// library's name of the error.
class LtApi {
 public:
  virtual ~LtApi() = default;
  // "13.1.1"
  virtual std::string version() const = 0;
  // At most `count` algorithms that compute `gemm` without a workspace, fastest first as the
  // library expects. Pointers are not read; any that are aligned to 16 will do later.
  virtual absl::StatusOr<std::vector<LtAlgorithm>> Candidates(const Gemm& gemm, int count) = 0;
  virtual absl::Status Run(const Gemm& gemm, const LtAlgorithm& algorithm, CudaStream stream) = 0;
};

// The machine's libcublasLt.so.13, wherever OpenLibrary finds it
// (common/device/cuda/library_search.h). FailedPrecondition: there is none, it lacks a function, it
// finds no device, or this program's kernels run on the emulator. ResourceExhausted: it is there,
// and the device has no memory for it now.
absl::StatusOr<std::unique_ptr<LtApi>> OpenLt();

}  // namespace tandem
