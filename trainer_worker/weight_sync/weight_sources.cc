#include "trainer_worker/weight_sync/weight_sources.h"

#include <algorithm>

#include "common/base/status.h"

namespace tandem {
namespace {

// A rank's part of a range of rows of a tensor.
struct RowsOfRank {
  int64_t first = 0;  // in the tensor
  int64_t count = 0;
};
RowsOfRank Intersect(const TensorRows& rows, const ShardPlan::Piece& piece) {
  const int64_t first = std::max(rows.row, piece.row);
  const int64_t last = std::min(rows.row + rows.rows, piece.row + piece.rows);
  return {first, std::max<int64_t>(0, last - first)};
}

// This rank's part of the range in its stored shard, whose dtype is the layout's.
PlacedRows FindStoredRows(const WeightRows& policy, const TensorRows& rows) {
  const ShardPlan& plan = policy.plan();
  const size_t tensor = plan.IndexOf(*rows.place);
  const auto element = static_cast<int64_t>(DTypeBytes(plan.layout().dtype()));
  PlacedRows found{.mine = policy.stored().data + plan.mine(tensor).offset * element};
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const ShardPlan::Piece& piece = plan.piece(tensor, rank);
    const auto [first, count] = Intersect(rows, piece);
    found.bytes.push_back(count * rows.row_bytes);
    if (rank == plan.rank() && count > 0) found.mine += (first - piece.row) * rows.row_bytes;
  }
  return found;
}

}  // namespace

absl::StatusOr<PlacedRows> PlaceMyRows(WeightRows& policy,
                                       const TensorRows& rows,
                                       DType dtype,
                                       std::byte* dest) {
  const ShardPlan& plan = policy.plan();
  const size_t tensor = plan.IndexOf(*rows.place);
  const int64_t row_bytes = rows.place->cols() * static_cast<int64_t>(DTypeBytes(dtype));
  PlacedRows placed{.mine = dest};
  std::byte* next = dest;
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const ShardPlan::Piece& piece = plan.piece(tensor, rank);
    const auto [first, count] = Intersect(rows, piece);
    placed.bytes.push_back(count * row_bytes);
    if (rank == plan.rank() && count > 0) {
      placed.mine = next;
      TANDEM_RETURN_IF_ERROR(policy.CopyRows(tensor, first - piece.row, count, dtype, next));
    }
    next += placed.bytes.back();
  }
  return placed;
}

GatheredWeightSource::GatheredWeightSource(WeightRows* rows,
                                           DigestTensors digest_tensors,
                                           Communicator* communicator)
    : rows_(rows), digest_tensors_(std::move(digest_tensors)), communicator_(communicator) {
  const ShardPlan& plan = rows->plan();
  const ShareableMemory* const memory = rows->shared();
  if (plan.world_size() > 1 || memory == nullptr) return;
  shared_.shard = {memory->data(), memory->bytes(), memory->fd()};
  const auto element = static_cast<int64_t>(DTypeBytes(plan.layout().dtype()));
  for (const TensorPlace& place : plan.layout().places()) {
    shared_.offsets.push_back(plan.mine(plan.IndexOf(place)).offset * element);
  }
}

absl::StatusOr<const void*> GatheredWeightSource::GatherRows(const TensorRows& rows,
                                                             std::byte* dest) {
  const ShardPlan& plan = rows_->plan();
  PlacedRows placed;
  if (rows_->stored().data != nullptr) {
    placed = FindStoredRows(*rows_, rows);
  } else {
    TANDEM_ASSIGN_OR_RETURN(placed, PlaceMyRows(*rows_, rows, plan.layout().dtype(), dest));
  }
  if (plan.world_size() == 1) return placed.mine;
  TANDEM_RETURN_IF_ERROR(communicator_->AllGatherV(placed.mine, placed.bytes, dest));
  return dest;
}

}  // namespace tandem
