#include "trainer_worker/shard/piece_digest.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/model_spec/row_ranges.h"

namespace tandem {

int64_t PieceDigestScratchBytes(const ShardPlan& plan, const Device& device) {
  int64_t bytes = 0;
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    bytes = std::max(bytes, DigestRangeBytes(plan.mine(tensor).rows, plan.tensors()[tensor]->cols(),
                                             !device.is_host()));
  }
  return bytes;
}

absl::Status DigestPiece(PolicyRows& policy,
                         size_t tensor,
                         ShardOps& ops,
                         const MemoryRegion& scratch,
                         MasterDigests& digests) {
  const ShardPlan::Piece& piece = policy.plan().mine(tensor);
  const int64_t cols = policy.plan().tensors()[tensor]->cols();
  const int64_t step = std::max<int64_t>(1, scratch.bytes() / (cols * kFloat32Bytes));
  auto* const values = reinterpret_cast<float*>(scratch.data());
  for (int64_t row = 0; row < piece.rows; row += step) {
    const int64_t rows = std::min(step, piece.rows - row);
    TANDEM_RETURN_IF_ERROR(policy.CopyRows(tensor, row, rows, DType::kFloat32, values));
    TANDEM_RETURN_IF_ERROR(digests.Take(ops, piece.offset + row * cols, rows * cols, values));
  }
  return absl::OkStatus();
}

}  // namespace tandem
