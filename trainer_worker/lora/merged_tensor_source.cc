#include "trainer_worker/lora/merged_tensor_source.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace tandem {

absl::StatusOr<const void*> MergedTensorSource::GatherRows(const TensorRows& rows,
                                                           std::byte* dest) {
  const ShardPlan& plan = weights_->plan();
  const size_t tensor = plan.IndexOf(*rows.place);
  std::vector<int64_t> bytes;
  std::byte* mine = dest;
  int64_t before = 0;
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const ShardPlan::Piece& piece = plan.piece(tensor, rank);
    const int64_t first = std::max(rows.row, piece.row);
    const int64_t count = std::min(rows.row + rows.rows, piece.row + piece.rows) - first;
    bytes.push_back(std::max<int64_t>(0, count) * rows.row_bytes);
    if (rank == plan.rank() && count > 0) {
      mine = dest + before;
      TANDEM_RETURN_IF_ERROR(
          weights_->CopyRows(tensor, first - piece.row, count, plan.layout().dtype(), mine));
    }
    before += bytes.back();
  }
  if (plan.world_size() > 1) {
    TANDEM_RETURN_IF_ERROR(communicator_->AllGatherV(mine, bytes, dest));
  }
  return dest;
}

}  // namespace tandem
