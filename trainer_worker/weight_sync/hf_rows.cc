#include "trainer_worker/weight_sync/hf_rows.h"

#include "common/base/status_macros.h"
#include "common/model_spec/row_ranges.h"
#include "trainer_worker/shard/host_staging.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<HfRows>> HfRows::Open(const std::string& model_dir,
                                                     const ModelSpec& spec,
                                                     DType dtype,
                                                     Device* device,
                                                     Ledger* ledger) {
  auto rows = std::make_unique<HfRows>();
  TANDEM_ASSIGN_OR_RETURN(rows->checkpoint_, HfCheckpoint::Open(model_dir, spec));
  const int64_t bytes = RowScratchBytes(spec, static_cast<int64_t>(DTypeBytes(dtype)));
  TANDEM_ASSIGN_OR_RETURN(rows->scratch_, TakeHostMemory(device, "gather", bytes, ledger));
  rows->dtype_ = dtype;
  return rows;
}

absl::StatusOr<const void*> HfRows::Rows(const TensorRows& rows) {
  TANDEM_RETURN_IF_ERROR(
      checkpoint_->ReadRows(rows.place->name, rows.row, rows.rows, dtype_, scratch_->data()));
  return scratch_->data();
}

}  // namespace tandem
