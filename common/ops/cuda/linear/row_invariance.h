// Which algorithms of cuBLASLt may compute a linear layer: those of which this device has shown
// that a row's bits do not depend on the number of rows, on the row's index or on the others.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_context.h"
#include "common/memory/cuda_scratch.h"
#include "common/ops/cuda/linear/cublaslt_api.h"
#include "common/ops/cuda/linear/gemm.h"

namespace tandem {

// A family of products that differ in rows (m) alone; kForward or kInput.
struct LtShape {
  GemmKind kind = GemmKind::kForward;
  GemmOutput output = GemmOutput::kBf16;
  int64_t n = 0, k = 0;  // of Gemm
  bool bias = false;
  friend auto operator<=>(const LtShape&, const LtShape&) = default;
};

// How many products a proof tries. All have a multiple of sixteen rows (kProductRows), and so have
// all products that are run. Bucket i serves row counts above bucket i - 1 up to its own.
struct RowInvariancePlan {
  std::vector<int64_t> buckets = {16, 32, 64, 128, 256, 512, 1024, 2048};
  int64_t reference_rows = 3008;       // of the product that all others are compared with, at most
  int64_t most_bytes = kLtProofBytes;  // of device memory, for one shape
  int references = 4;                  // algorithms tried for that one
  int candidates = 16;                 // algorithms tried per bucket
};
// The reference's rows that fit into most_bytes; 0 where they would not go beyond the last bucket,
// whose rows could not be tried then.
int64_t ReferenceRows(const LtShape& shape, const RowInvariancePlan& plan);
// The numbers of rows that a bucket is tried with: all that it serves. Each is tried at several
// places among the reference's rows.
std::vector<int64_t> RowsToTry(const RowInvariancePlan& plan, size_t bucket);

// One algorithm per bucket; all give the same bits for the same row. Valid up to the last bucket's
// number of rows.
struct PinnedAlgorithms {
  std::vector<int64_t> buckets;
  std::vector<LtAlgorithm> algorithms;
  const LtAlgorithm& For(int64_t rows) const;
};

// Neither splits the sum over k between blocks, as far as the library says.
bool MayBeRowInvariant(const LtAlgorithm& algorithm);

// Per bucket the algorithm that the library expects to be the fastest, among those whose rows have
// the bits of the reference product, and whose reference is near our own kernels' product.
// Operands are numbers that the shape decides, so that every process comes to the same choice.
// NotFound: none passed, the message counts those that were tried, or the plan grants too little
// for the shape: the same in every process. ResourceExhausted: no device memory for the operands
// (ProofBytes) now. Waits for the context's stream; not inside a capture.
absl::StatusOr<PinnedAlgorithms> ProveRows(CudaContext* context,
                                           LtApi* lt,
                                           const LtShape& shape,
                                           const RowInvariancePlan& plan);
// Device memory that ProveRows holds while it runs, at most plan.most_bytes: the weight, the rows
// of the operand and twice those of the result. 0 where ReferenceRows is. With the default plan an
// 8B model's largest shape, [28672, 4096] in the MLP of Llama, takes 576 MiB, a group of its head
// 527.
int64_t ProofBytes(const LtShape& shape, const RowInvariancePlan& plan);

}  // namespace tandem
