#include "trainer_worker/weight_gather.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<WeightGather>> WeightGather::Create(const ShardPlan* plan,
                                                                   const std::byte* compute,
                                                                   Communicator* communicator,
                                                                   Ledger* ledger,
                                                                   int64_t resident_bytes) {
  std::unique_ptr<WeightGather> gather(new WeightGather);
  gather->plan_ = plan;
  gather->compute_ = compute;
  gather->communicator_ = communicator;
  const WeightLayout& layout = plan->layout();
  gather->resident_ = plan->world_size() == 1 || layout.total_bytes() <= resident_bytes;
  gather->filled_.assign(static_cast<size_t>(layout.num_layers()) + 1, false);
  const int64_t bytes =
      gather->resident_ ? layout.total_bytes() : layout.global_bytes() + layout.layer_bytes();
  TANDEM_ASSIGN_OR_RETURN(gather->storage_, MemoryRegion::Reserve("gather", bytes, ledger));
  if (plan->world_size() == 1) return gather;
  const int64_t largest = std::max(layout.group_elements(-1), layout.group_elements(0));
  TANDEM_ASSIGN_OR_RETURN(
      gather->staging_,
      MemoryRegion::Reserve("gather", largest * static_cast<int64_t>(DTypeBytes(layout.dtype())),
                            ledger));
  return gather;
}

absl::Status WeightGather::Map() {
  if (storage_->mapped()) return absl::OkStatus();
  Refresh();
  TANDEM_RETURN_IF_ERROR(storage_->Map());
  return staging_ == nullptr ? absl::OkStatus() : staging_->Map();
}

absl::Status WeightGather::Release() {
  Refresh();
  TANDEM_RETURN_IF_ERROR(storage_->Release());
  return staging_ == nullptr ? absl::OkStatus() : staging_->Release();
}

void WeightGather::Refresh() { std::fill(filled_.begin(), filled_.end(), false); }

std::byte* WeightGather::Place(int layer) const {
  const WeightLayout& layout = plan_->layout();
  return storage_->data() + layout.group_offset(resident_ ? layer : std::min(layer, 0));
}

absl::StatusOr<const std::byte*> WeightGather::Group(int layer) {
  const auto index = static_cast<size_t>(layer + 1);
  std::byte* group = Place(layer);
  if (filled_[index]) return group;
  if (layer >= 0 && !resident_) std::fill(filled_.begin() + 1, filled_.end(), false);
  TANDEM_RETURN_IF_ERROR(Fill(layer, group));
  filled_[index] = true;
  return group;
}

absl::Status WeightGather::Fill(int layer, std::byte* group) {
  const auto element = static_cast<int64_t>(DTypeBytes(plan_->layout().dtype()));
  const int rank = plan_->rank();
  std::vector<const std::byte*> shards = {compute_ + plan_->group_offset(layer, rank) * element};
  if (plan_->world_size() > 1) {
    std::vector<int64_t> bytes;
    shards.clear();
    int64_t offset = 0;
    for (int r = 0; r < plan_->world_size(); ++r) {
      bytes.push_back(plan_->group_elements(layer, r) * element);
      shards.push_back(staging_->data() + offset);
      offset += bytes.back();
    }
    TANDEM_RETURN_IF_ERROR(communicator_->AllGatherV(
        compute_ + plan_->group_offset(layer, rank) * element, bytes, staging_->data()));
  }
  const ShardPlan::Group tensors = plan_->group(layer);
  for (size_t tensor = tensors.first; tensor < tensors.last; ++tensor) {
    for (int r = 0; r < plan_->world_size(); ++r) {
      const ShardPlan::Piece& piece = plan_->piece(tensor, r);
      if (piece.rows == 0) continue;
      const int64_t offset = (piece.offset - plan_->group_offset(layer, r)) * element;
      plan_->layout().WriteRows(group, *plan_->tensors()[tensor], piece.row, piece.rows,
                                shards[static_cast<size_t>(r)] + offset);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
