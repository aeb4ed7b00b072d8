#include "trainer_worker/lora/base_rows.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/model_spec/row_ranges.h"
#include "common/tensor_file/element_convert.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<BaseRows>> BaseRows::Create(const ShardPlan* plan,
                                                           DType dtype,
                                                           Device* device,
                                                           Ledger* ledger) {
  std::unique_ptr<BaseRows> rows(new BaseRows(plan, dtype, device));
  TANDEM_ASSIGN_OR_RETURN(rows->array_,
                          ShardArray::Create(device, "weights", plan->elements(plan->rank()),
                                             static_cast<int64_t>(DTypeBytes(dtype)), "", ledger));
  return rows;
}

absl::Status BaseRows::Load(const HfCheckpoint& checkpoint) {
  for (size_t tensor = 0; tensor < plan_->tensors().size(); ++tensor) {
    const TensorPlace& place = *plan_->tensors()[tensor];
    const ShardPlan::Piece& piece = plan_->mine(tensor);
    const int64_t row_bytes = place.cols() * static_cast<int64_t>(DTypeBytes(dtype_));
    const int64_t step = RowsPerRange(row_bytes);
    for (int64_t row = 0; row < piece.rows; row += step) {
      TANDEM_RETURN_IF_ERROR(checkpoint.ReadRows(place.name, piece.row + row,
                                                 std::min(step, piece.rows - row), dtype_,
                                                 const_cast<std::byte*>(Row(tensor, row))));
    }
  }
  return absl::OkStatus();
}

const std::byte* BaseRows::Row(size_t tensor, int64_t row) const {
  const int64_t element = plan_->mine(tensor).offset + row * plan_->tensors()[tensor]->cols();
  return array_->data() + element * static_cast<int64_t>(DTypeBytes(dtype_));
}

absl::Status BaseRows::CopyRows(size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) {
  const auto count = static_cast<size_t>(rows * plan_->tensors()[tensor]->cols());
  return ConvertElements(Row(tensor, row), dtype_, out, dtype, count);
}

}  // namespace tandem
