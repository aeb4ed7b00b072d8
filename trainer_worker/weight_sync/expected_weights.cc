#include "trainer_worker/weight_sync/expected_weights.h"

#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "common/model_spec/row_ranges.h"
#include "trainer_worker/shard/shard_array.h"
#include "trainer_worker/weight_sync/weight_sources.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<CheckpointWeights>> CheckpointWeights::Open(
    const std::string& model_dir,
    const ModelSpec& spec,
    DType dtype,
    Device* device,
    Ledger* ledger) {
  auto rows = std::make_unique<CheckpointWeights>();
  TANDEM_ASSIGN_OR_RETURN(rows->checkpoint_, HfCheckpoint::Open(model_dir, spec));
  const int64_t bytes = RowScratchBytes(spec, static_cast<int64_t>(DTypeBytes(dtype)));
  TANDEM_ASSIGN_OR_RETURN(rows->scratch_, TakeHostMemory(device, "gather", bytes, ledger));
  rows->dtype_ = dtype;
  return rows;
}

absl::StatusOr<const void*> CheckpointWeights::Rows(const TensorRows& rows) {
  TANDEM_RETURN_IF_ERROR(
      checkpoint_->ReadRows(rows.place->name, rows.row, rows.rows, dtype_, scratch_->data()));
  return scratch_->data();
}

absl::StatusOr<std::unique_ptr<MasterWeights>> MasterWeights::Create(
    WeightRows* policy,
    Communicator* communicator,
    Ledger* ledger,
    const MasterWeightsOptions& options) {
  std::unique_ptr<MasterWeights> rows(new MasterWeights(policy, communicator, options));
  auto scratch = TakeHostMemory(policy->device(), "gather", options.scratch_bytes, ledger);
  TANDEM_RETURN_IF_ERROR(
      Agree(*communicator, scratch.status(), "taking memory to gather rows").status());
  rows->scratch_ = *std::move(scratch);
  return rows;
}

absl::StatusOr<const void*> MasterWeights::Rows(const TensorRows& rows) {
  const int64_t cols = rows.place->cols();
  const auto element = static_cast<int64_t>(DTypeBytes(options_.dtype));
  if (rows.rows * cols * element > scratch_->bytes()) {
    return InvalidArgument("{} rows of {} were asked for, which scratch of {} bytes does not hold",
                           rows.rows, rows.place->name, scratch_->bytes());
  }
  TANDEM_ASSIGN_OR_RETURN(const PlacedRows placed,
                          PlaceMyRows(*policy_, rows, options_.dtype, scratch_->data()));
  TANDEM_RETURN_IF_ERROR(policy_->device()->Synchronize());
  const bool receives = options_.receiver < 0 || options_.receiver == policy_->plan().rank();
  std::byte* const all = receives ? scratch_->data() : nullptr;
  TANDEM_RETURN_IF_ERROR(communicator_->host().AllGatherV(placed.mine, placed.bytes, all));
  return all;
}

absl::StatusOr<std::vector<int64_t>> MasterWeights::ExchangeCounts(int64_t mine) {
  std::vector<int64_t> all(static_cast<size_t>(communicator_->world_size()));
  TANDEM_RETURN_IF_ERROR(communicator_->host().AllGather(&mine, sizeof(mine), all.data()));
  return all;
}

}  // namespace tandem
