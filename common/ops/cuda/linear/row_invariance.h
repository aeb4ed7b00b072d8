// Which algorithms of cuBLASLt may compute a linear layer: those that were shown, on this device,
// to give a row the same bits for any number of rows, any index of the row and any other rows.
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

// A family of products that differ only in their number of rows (m); kForward or kInput.
struct LtShape {
  GemmKind kind = GemmKind::kForward;
  GemmOutput output = GemmOutput::kBf16;
  int64_t n = 0, k = 0;  // of Gemm
  bool bias = false;
  friend auto operator<=>(const LtShape&, const LtShape&) = default;
};

// How many products a proof tries. All of them, and all products that are run later, have a
// multiple of sixteen rows (kProductRows). Bucket i serves row counts above bucket i - 1 up to its
// own.
struct RowInvariancePlan {
  std::vector<int64_t> buckets = {16, 32, 64, 128, 256, 512, 1024, 2048};
  int64_t reference_rows = 3008;  // maximum rows of the product with which all others are compared
  int64_t most_bytes = kLtProofBytes;  // of device memory, for one shape
  int references = 4;                  // algorithms tried for that product
  int candidates = 16;                 // algorithms tried per bucket
};
// The reference's number of rows that fit into most_bytes; 0 if these are not more than the last
// bucket's, whose rows could not be tried then.
int64_t ReferenceRows(const LtShape& shape, const RowInvariancePlan& plan);
// The row counts that a bucket is tried with: all that it serves. Each is tried at several places
// among the reference's rows.
std::vector<int64_t> RowsToTry(const RowInvariancePlan& plan, size_t bucket);

// One algorithm per bucket; all give the same bits for the same row. Valid up to the row count of
// the last bucket.
struct PinnedAlgorithms {
  std::vector<int64_t> buckets;
  std::vector<LtAlgorithm> algorithms;
  const LtAlgorithm& For(int64_t rows) const;
};

// Whether the algorithm does not split the sum over k between blocks, as far as the library says.
bool MayBeRowInvariant(const LtAlgorithm& algorithm);

// For each bucket, the algorithm that the library expects to be the fastest among those whose rows
// have the bits of the reference product, where the reference is close to our own kernels' product.
// The operands depend only on the shape, so that every process makes the same choice. NotFound:
// none passed (the message counts those that were tried), or the plan allows too little for the
// shape; this is the same in every process. ResourceExhausted: there is no device memory for the
// operands (ProofBytes) now. Waits for the context's stream; must not be called inside a capture.
absl::StatusOr<PinnedAlgorithms> ProveRows(CudaContext* context,
                                           LtApi* lt,
                                           const LtShape& shape,
                                           const RowInvariancePlan& plan);
// Device memory that ProveRows holds while it runs, at most plan.most_bytes: the weight, the rows
// of the operand and twice those of the result. 0 if ReferenceRows is 0. With the default plan, the
// largest shape of an 8B model, [28672, 4096] in Llama's MLP, takes 576 MiB, and a group of its
// head 527.
int64_t ProofBytes(const LtShape& shape, const RowInvariancePlan& plan);

}  // namespace tandem
