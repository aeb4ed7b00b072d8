// A product of two bf16 matrices on a device, and the interface of its two implementations:
// Tandem's own kernels (tandem_gemm.h) and cuBLASLt (cublaslt_engine.h).
#pragma once

#include <cstdint>

namespace tandem {

// Which operands are transposed, and which guarantee the sums have:
// - kForward: c [m, n] = a [m, k] bᵀ, b [n, k]; kInput: c [m, n] = a [m, k] b, b [k, n]. A row of c
//   is a function of that row of a and of b alone.
// - kWeights: c [m, n] = aᵀ b, a [k, m], b [k, n]. The same bits for the same operands.
enum class GemmKind { kForward, kInput, kWeights };
enum class GemmOutput { kBf16, kFloat, kFloatAdd };  // kFloatAdd: c += product

// All matrices are row-major on the device and aligned to 16; strides are in elements: multiples of
// 8 of a and b, and 16 bytes of c. Sums are fp32, rounded once. Memory up to the next multiple of 8
// columns may be read, and counts where it is along k of a.
struct Gemm {
  GemmKind kind = GemmKind::kForward;
  GemmOutput output = GemmOutput::kBf16;
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  int64_t a_stride = 0;
  const void* b = nullptr;
  int64_t b_stride = 0;
  const void* bias = nullptr;  // [n] bf16, added before rounding, or null
  void* c = nullptr;
  int64_t c_stride = 0;
};

// Not thread-safe: used by the engine thread. Work goes to the context's stream;
// CudaContext::Synchronize reports its errors.
class GemmEngine {
 public:
  virtual ~GemmEngine() = default;
  virtual void Run(const Gemm& gemm) = 0;
};

}  // namespace tandem
