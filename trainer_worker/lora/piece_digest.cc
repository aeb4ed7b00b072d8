#include "trainer_worker/lora/piece_digest.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/model_spec/row_ranges.h"

namespace tandem {
namespace {

constexpr auto kElement = static_cast<int64_t>(sizeof(float));

}  // namespace

int64_t PieceDigestScratchBytes(const ShardPlan& plan) {
  int64_t bytes = kRowRangeBytes;
  for (const TensorPlace* place : plan.tensors()) bytes = std::max(bytes, place->cols() * kElement);
  return bytes;
}

absl::Status DigestPiece(
    PolicyRows& policy, size_t tensor, ShardOps& ops, float* scratch, MasterDigests& digests) {
  const ShardPlan::Piece& piece = policy.plan().mine(tensor);
  const int64_t cols = policy.plan().tensors()[tensor]->cols();
  const int64_t step = RowsPerRange(cols * kElement);
  for (int64_t row = 0; row < piece.rows; row += step) {
    const int64_t rows = std::min(step, piece.rows - row);
    TANDEM_RETURN_IF_ERROR(policy.CopyRows(tensor, row, rows, DType::kFloat32, scratch));
    TANDEM_RETURN_IF_ERROR(digests.Take(ops, piece.offset + row * cols, rows * cols, scratch));
  }
  return absl::OkStatus();
}

}  // namespace tandem
