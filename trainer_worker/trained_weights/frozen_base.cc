#include "trainer_worker/trained_weights/frozen_base.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/model_spec/row_ranges.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<FrozenBase>> FrozenBase::Create(const ShardPlan* plan,
                                                               DType dtype,
                                                               const ShardCompute& compute,
                                                               Ledger* ledger) {
  std::unique_ptr<FrozenBase> rows(new FrozenBase(plan, dtype, compute, ledger));
  TANDEM_ASSIGN_OR_RETURN(
      rows->array_, ShardArray::Create(compute.device, "weights", plan->elements(plan->rank()),
                                       static_cast<int64_t>(DTypeBytes(dtype)), "", ledger));
  return rows;
}

absl::Status FrozenBase::Load(const HfCheckpoint& checkpoint) {
  for (size_t tensor = 0; tensor < plan_->tensors().size(); ++tensor) {
    const ShardPlan::Piece& piece = plan_->mine(tensor);
    const int64_t step =
        RowsPerRange(plan_->tensors()[tensor]->cols() * static_cast<int64_t>(DTypeBytes(dtype_)));
    for (int64_t row = 0; row < piece.rows; row += step) {
      TANDEM_RETURN_IF_ERROR(LoadRows(checkpoint, tensor, row, std::min(step, piece.rows - row)));
    }
  }
  staging_.Release();
  return absl::OkStatus();
}

absl::Status FrozenBase::LoadRows(const HfCheckpoint& checkpoint,
                                  size_t tensor,
                                  int64_t row,
                                  int64_t rows) {
  const TensorPlace& place = *plan_->tensors()[tensor];
  const int64_t first = plan_->mine(tensor).row + row;
  auto* const to = const_cast<std::byte*>(Row(tensor, row));
  if (array_->in_host_memory()) {
    return checkpoint.ReadRows(place.name, first, rows, dtype_, to);
  }
  const int64_t bytes = rows * place.cols() * static_cast<int64_t>(DTypeBytes(dtype_));
  TANDEM_ASSIGN_OR_RETURN(std::byte* const room, staging_.Room(bytes));
  TANDEM_RETURN_IF_ERROR(checkpoint.ReadRows(place.name, first, rows, dtype_, room));
  compute_.device->Copy(to, room, bytes);
  return compute_.device->Synchronize();  // the staging memory is pinned and will be refilled
}

const std::byte* FrozenBase::Row(size_t tensor, int64_t row) const {
  const int64_t element = plan_->mine(tensor).offset + row * plan_->tensors()[tensor]->cols();
  return array_->data() + element * static_cast<int64_t>(DTypeBytes(dtype_));
}

absl::Status FrozenBase::CopyRows(
    size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) {
  compute_.ops->Convert(Row(tensor, row), dtype_, out, dtype,
                        rows * plan_->tensors()[tensor]->cols());
  return absl::OkStatus();
}

}  // namespace tandem
