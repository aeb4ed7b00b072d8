#include "trainer_worker/weight_sync/shard_tensor_source.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace tandem {

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

}  // namespace tandem
