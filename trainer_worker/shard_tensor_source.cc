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
  TANDEM_RETURN_IF_ERROR(source->buffer_->Map());
  return source;
}

absl::StatusOr<const void*> ShardTensorSource::Gather(const TensorPlace& place) {
  const ShardPlan& plan = shard_->plan();
  const auto element = static_cast<int64_t>(DTypeBytes(plan.layout().dtype()));
  const size_t tensor = plan.IndexOf(place);
  const std::byte* mine = shard_->compute() + plan.mine(tensor).offset * element;
  if (plan.world_size() == 1) return mine;
  std::vector<int64_t> bytes = plan.CountsPerRank(tensor);
  for (int64_t& count : bytes) count *= element;
  TANDEM_RETURN_IF_ERROR(communicator_->AllGatherV(mine, bytes, buffer_->data()));
  return buffer_->data();
}

}  // namespace tandem
