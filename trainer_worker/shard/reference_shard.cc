#include "trainer_worker/shard/reference_shard.h"

#include "common/base/status_macros.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<ReferenceShard>> ReferenceShard::Copy(const ParameterShard& shard,
                                                                     const std::string& offload_dir,
                                                                     Ledger* ledger) {
  std::unique_ptr<ReferenceShard> copy(new ReferenceShard);
  const ShardPlan& plan = shard.plan();
  const auto element = static_cast<int64_t>(DTypeBytes(plan.layout().dtype()));
  TANDEM_ASSIGN_OR_RETURN(copy->array_,
                          ShardArray::Create(shard.device(), "reference", shard.elements(), element,
                                             offload_dir, ledger));
  for (int layer = -1; layer < plan.layout().num_layers(); ++layer) {
    const int64_t offset = plan.group_offset(layer, plan.rank()) * element;
    const int64_t length = plan.group_elements(layer, plan.rank()) * element;
    shard.device()->Copy(copy->array_->data() + offset, shard.compute() + offset, length);
    copy->array_->Evict(offset, length);
  }
  copy->array_->Evict();  // with the pages that groups share
  TANDEM_RETURN_IF_ERROR(shard.device()->Synchronize());
  return copy;
}

ShardSource ReferenceShard::source() const {
  return {.data = array_->data(), .file = array_->file(), .offloaded = array_->offloaded()};
}

}  // namespace tandem
