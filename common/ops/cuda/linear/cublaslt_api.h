// The interface of the backend to cuBLASLt: the library, looked up at run time
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

// One of the library's algorithms for a product: which kernel, tile, stages and so on.
struct LtAlgorithm {
  std::array<uint64_t, 8> opaque{};  // cublasLtMatmulAlgo_t
  int id = 0;                        // CUBLASLT_ALGO_CONFIG_ID
  int tile = 0;                      // CUBLASLT_ALGO_CONFIG_TILE_ID
  int split_k = 1;                   // CUBLASLT_ALGO_CONFIG_SPLITK_NUM
  int reduction = 0;                 // CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME; 0: none
  int64_t workspace_bytes = 0;
  friend bool operator==(const LtAlgorithm&, const LtAlgorithm&) = default;
};

// Not thread-safe. Errors, with the library's name of them: InvalidArgument (the algorithm cannot
// compute the product), ResourceExhausted (the library could not allocate memory), Internal (all
// others).
class LtApi {
 public:
  virtual ~LtApi() = default;
  // "13.1.1"
  virtual std::string version() const = 0;
  // At most `count` algorithms that compute `gemm` without a workspace, in the library's order of
  // expected speed. Pointers are not read; later calls may use any that are aligned to 16.
  virtual absl::StatusOr<std::vector<LtAlgorithm>> Candidates(const Gemm& gemm, int count) = 0;
  virtual absl::Status Run(const Gemm& gemm, const LtAlgorithm& algorithm, CudaStream stream) = 0;
};

// The machine's libcublasLt.so.13, where OpenLibrary finds it
// (common/device/cuda/library_search.h). FailedPrecondition: there is none, it lacks a function, it
// finds no device, or this program's kernels run on the emulator. ResourceExhausted: the library
// exists, but the device has no memory for it now.
absl::StatusOr<std::unique_ptr<LtApi>> OpenLt();

}  // namespace tandem
