#include "trainer_worker/weight_sync/lora_tensor_source.h"

#include "common/base/status_macros.h"
#include "trainer_worker/weight_sync/gathered_rows.h"

namespace tandem {

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
