#include "trainer_worker/weight_sync/gathered_rows.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace tandem {

absl::StatusOr<PlacedRows> PlaceMyRows(PolicyRows& policy,
                                       const TensorRows& rows,
                                       DType dtype,
                                       std::byte* dest) {
  const ShardPlan& plan = policy.plan();
  const size_t tensor = plan.IndexOf(*rows.place);
  const int64_t row_bytes = rows.place->cols() * static_cast<int64_t>(DTypeBytes(dtype));
  PlacedRows placed{.mine = dest};
  int64_t before = 0;
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const ShardPlan::Piece& piece = plan.piece(tensor, rank);
    const int64_t first = std::max(rows.row, piece.row);
    const int64_t count = std::min(rows.row + rows.rows, piece.row + piece.rows) - first;
    placed.bytes.push_back(std::max<int64_t>(0, count) * row_bytes);
    if (rank == plan.rank() && count > 0) {
      placed.mine = dest + before;
      TANDEM_RETURN_IF_ERROR(policy.CopyRows(tensor, first - piece.row, count, dtype, placed.mine));
    }
    before += placed.bytes.back();
  }
  return placed;
}

}  // namespace tandem
