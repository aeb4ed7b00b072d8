#include "trainer_worker/weight_sync/weight_sources.h"

#include <algorithm>

#include "common/base/status.h"

namespace tandem {

absl::StatusOr<PlacedRows> PlaceMyRows(WeightRows& policy,
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

namespace {

// Where a single rank's shard has the tensors.
SharedTensors AllOf(const ParameterShard& shard) {
  const ShardPlan& plan = shard.plan();
  const auto element = static_cast<int64_t>(DTypeBytes(plan.layout().dtype()));
  SharedTensors all;
  if (const ShareableMemory* const memory = shard.shared(); memory != nullptr) {
    all.shard = {memory->data(), memory->bytes(), memory->fd()};
  }
  for (const TensorPlace& place : plan.layout().places()) {
    all.offsets.push_back(plan.mine(plan.IndexOf(place)).offset * element);
  }
  return all;
}

}  // namespace

ShardTensorSource::ShardTensorSource(const ParameterShard* shard, Communicator* communicator)
    : shard_(shard), communicator_(communicator) {
  if (shard->plan().world_size() == 1) shared_ = AllOf(*shard);
}

absl::StatusOr<std::vector<Digest>> ShardTensorSource::Digests() {
  return shard_->digests().OfTensors(*communicator_);
}

absl::StatusOr<const void*> ShardTensorSource::GatherRows(const TensorRows& rows, std::byte* dest) {
  const ShardPlan& plan = shard_->plan();
  const auto element = static_cast<int64_t>(DTypeBytes(plan.layout().dtype()));
  const size_t tensor = plan.IndexOf(*rows.place);
  // Every rank's part of the range, in bytes of its piece.
  std::vector<int64_t> bytes;
  int64_t my_first = 0;
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const ShardPlan::Piece& piece = plan.piece(tensor, rank);
    const int64_t first = std::max(rows.row, piece.row);
    const int64_t last = std::min(rows.row + rows.rows, piece.row + piece.rows);
    bytes.push_back(std::max<int64_t>(0, last - first) * rows.row_bytes);
    if (rank == plan.rank() && bytes.back() > 0) my_first = (first - piece.row) * rows.row_bytes;
  }
  const std::byte* mine = shard_->compute() + plan.mine(tensor).offset * element + my_first;
  if (plan.world_size() == 1) return mine;
  TANDEM_RETURN_IF_ERROR(communicator_->AllGatherV(mine, bytes, dest));
  return dest;
}

absl::StatusOr<const void*> LoraTensorSource::GatherRows(const TensorRows& rows, std::byte* dest) {
  const ShardPlan& plan = policy_->plan();
  TANDEM_ASSIGN_OR_RETURN(const PlacedRows placed,
                          PlaceMyRows(*policy_, rows, plan.layout().dtype(), dest));
  if (plan.world_size() > 1) {
    TANDEM_RETURN_IF_ERROR(communicator_->AllGatherV(placed.mine, placed.bytes, dest));
  }
  return dest;
}

}  // namespace tandem
