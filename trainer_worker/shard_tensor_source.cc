#include "trainer_worker/shard_tensor_source.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<ShardTensorSource>> ShardTensorSource::Create(
    const ParameterShard* shard, Communicator* communicator, Ledger* ledger) {
  std::unique_ptr<ShardTensorSource> source(new ShardTensorSource);
  source->shard_ = shard;
  source->communicator_ = communicator;
  const ShardPlan& plan = shard->plan();
  if (plan.world_size() == 1) return source;
  int64_t largest = 0;
  for (const TensorPlace* place : plan.tensors()) {
    largest = std::max(largest, NumElements(place->shape));
  }
  const auto element = static_cast<int64_t>(DTypeBytes(plan.layout().dtype()));
  TANDEM_ASSIGN_OR_RETURN(source->buffer_,
                          MemoryRegion::Reserve("gather", largest * element, ledger));
  return source;
}

absl::StatusOr<const void*> ShardTensorSource::Gather(const TensorPlace& place) {
  if (buffer_ != nullptr) TANDEM_RETURN_IF_ERROR(buffer_->Map());
  const auto element = static_cast<int64_t>(DTypeBytes(shard_->plan().layout().dtype()));
  return GatherRows({&place, 0, place.rows(), place.cols() * element},
                    buffer_ == nullptr ? nullptr : buffer_->data());
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
