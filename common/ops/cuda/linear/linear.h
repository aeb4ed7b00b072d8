// The matrix products of the model on a GPU: linear layers, the head and their gradients. The head
// is always computed in the same groups of ids, because a logit's bits may depend on how many ids
// one product computes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_context.h"
#include "common/memory/cuda_scratch.h"
#include "common/ops/cuda/linear/cublaslt_api.h"
#include "common/ops/cuda/linear/gemm.h"
#include "common/ops/cuda/linear/row_invariance.h"
#include "common/ops/ops_types.h"
#include "common/types/numerics_choices.h"

namespace tandem {

struct HeadGroup {
  int64_t first_chunk = 0, chunks = 0;  // below vocab_limit
  int64_t first_id = 0, ids = 0;        // of the head, whatever vocab_limit
};

constexpr HeadGroup HeadGroupAt(int64_t group, int64_t head_rows, int64_t vocab_limit) {
  const int64_t first_id = group * kGroupIds;
  return {.first_chunk = group * kGroupChunks,
          .chunks = std::min(kGroupChunks, CudaVocabChunks(vocab_limit) - group * kGroupChunks),
          .first_id = first_id,
          .ids = std::min(kGroupIds, head_rows - first_id)};
}

// Rows [first, first + rows) of hidden states in bf16.
inline Matrix HiddenRows(Matrix matrix, int64_t first, int64_t rows) {
  matrix.data = static_cast<uint16_t*>(matrix.data) + first * matrix.stride;
  matrix.rows = rows;
  return matrix;
}

// Two engines: cuBLASLt, for every shape whose algorithms are proved row-invariant on this device
// (row_invariance.h), and Tandem's own tensor-core kernels (gemm.cu) for all others. The choice for
// a shape is made once and holds for any number of rows, because a row's bits depend on it.
struct CudaLinearOptions {
  enum class Engine { kBest, kOwn };
  Engine engine = Engine::kBest;
  std::unique_ptr<LtApi> lt;  // null: OpenLt(); tests pass their own
  RowInvariancePlan proof;
};

// A product of one weight W [n, k] for any number of rows, for Prepare; of the head, n is the ids
// of one Logits or AddInput.
struct LinearShape {
  enum class Use { kForward, kLogits, kInput, kAddInput };
  Use use = Use::kForward;
  int64_t n = 0, k = 0;
  bool bias = false;
};

class CublasLtGemm;

// Matrices are bf16 on the device, aligned to 16, with strides that are multiples of 8. W and its
// bias are as in LinearWeight: dense, row-major, cols a multiple of 8. Not thread-safe: used by the
// engine thread. Nothing is launched while the context only refreshes a graph. Errors are returned
// by CudaContext::Synchronize.
class CudaLinear {
 public:
  // `context` must outlive the object. If cuBLASLt cannot be loaded, the log says why.
  // TANDEM_CUDA_LINEAR=own in the environment asks for Engine::kOwn; InvalidArgument: it has
  // another value.
  static absl::StatusOr<std::unique_ptr<CudaLinear>> Create(CudaContext* context,
                                                            CudaLinearOptions options = {});
  ~CudaLinear();

  // Decides the engines of these shapes once and for all, which takes some tens of milliseconds
  // and, temporarily, a few hundred MiB of device memory per shape (ProofBytes). Shapes for which
  // no algorithm is found, and all shapes that are not given here, use our own kernels. Without
  // Prepare, a shape is decided at its first use, outside a capture. ResourceExhausted names bytes;
  // Internal: the device.
  absl::Status Prepare(const std::vector<LinearShape>& shapes);

  // out [M, N] = in [M, K] Wᵀ + bias, rounded once.
  void Forward(Matrix in, const LinearWeight& weight, Matrix out);
  // out [M, ids] = hidden [M, K] W[first_id .. first_id + ids)ᵀ, fp32, without bias; out_stride in
  // floats, a multiple of 4. A logit's bits do not depend on first_id, but may on `ids`.
  void Logits(Matrix hidden,
              const LinearWeight& head,
              int64_t first_id,
              int64_t ids,
              float* out,
              int64_t out_stride);
  // din [M, K] = dout [M, N] W; a row's bits are its own, as in Forward. If N is not a multiple of
  // 8, dout's columns up to the next multiple must be zero.
  void Input(Matrix dout, const LinearWeight& weight, Matrix din);
  // din [M, K] += dout [M, N] W in fp32, for the given rows of W, so that sums over many rows can
  // be computed piece by piece. Columns of dout as above.
  void AddInput(Matrix dout, const LinearWeight& weight, FloatMatrix din);
  // dweight [N, K] += doutᵀ in, dbias [N] += column sums of dout unless null; dense fp32, K a
  // multiple of 4. Gives the same bits for the same rows. A call adds its whole sum at the end, so
  // last bits differ if rows are split into several calls.
  void Weights(Matrix dout, Matrix in, float* dweight, float* dbias);

  // "own" or "cublaslt-<version>".
  std::string numerics() const;
  // Which engine and algorithms compute each decided shape. Workers compute the same bits if these
  // and their numerics() are equal.
  KernelChoices Choices() const;

 private:
  explicit CudaLinear(CudaContext* context);
  void Run(const Gemm& gemm);

  CudaContext* const context_;
  const std::unique_ptr<GemmEngine> own_;
  std::unique_ptr<CublasLtGemm> lt_;  // null: own kernels only
  KernelChoices without_lt_;          // what was prepared then
};

}  // namespace tandem
