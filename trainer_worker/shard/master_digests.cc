#include "trainer_worker/shard/master_digests.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/model_spec/row_ranges.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<RowDigests>> RowDigests::Create(WeightRows* rows,
                                                               DType dtype,
                                                               ShardOps* ops,
                                                               Ledger* ledger) {
  std::unique_ptr<RowDigests> digests(new RowDigests(rows, dtype, ops));
  const ShardPlan& plan = rows->plan();
  int64_t bytes = 0;
  for (size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    bytes = std::max(bytes, DigestRangeBytes(plan.mine(tensor).rows, plan.tensors()[tensor]->cols(),
                                             !rows->device()->is_host()));
  }
  TANDEM_ASSIGN_OR_RETURN(digests->scratch_, rows->device()->Reserve("gather", bytes, ledger));
  return digests;
}

absl::Status RowDigests::Take(const std::function<bool(size_t tensor)>& may_change) {
  TANDEM_RETURN_IF_ERROR(scratch_->Map());
  for (size_t tensor = 0; tensor < rows_->plan().tensors().size(); ++tensor) {
    if (!taken_ || may_change(tensor)) TANDEM_RETURN_IF_ERROR(TakeTensor(tensor));
  }
  taken_ = true;
  return scratch_->Release();
}

absl::Status RowDigests::TakeTensor(size_t tensor) {
  const ShardPlan::Piece& piece = rows_->plan().mine(tensor);
  const int64_t cols = rows_->plan().tensors()[tensor]->cols();
  const int64_t step = std::max<int64_t>(1, scratch_->bytes() / (cols * kFloat32Bytes));
  auto* const values = reinterpret_cast<float*>(scratch_->data());
  for (int64_t row = 0; row < piece.rows; row += step) {
    const int64_t rows = std::min(step, piece.rows - row);
    TANDEM_RETURN_IF_ERROR(rows_->CopyRows(tensor, row, rows, DType::kFloat32, values));
    TANDEM_RETURN_IF_ERROR(digests_.Take(*ops_, piece.offset + row * cols, rows * cols, values));
    NoteProgress();
  }
  return absl::OkStatus();
}

MasterDigests::MasterDigests(const ShardPlan* plan) : MasterDigests(plan, plan->layout().dtype()) {}

MasterDigests::MasterDigests(const ShardPlan* plan, DType dtype) : plan_(plan), dtype_(dtype) {
  // A digest that begins at -1 marks a piece that was not digested.
  runs_.assign(plan->tensors().size(), DigestRun(-1));
}

absl::Status MasterDigests::Take(ShardOps& ops,
                                 int64_t first,
                                 int64_t count,
                                 const float* masters) {
  const auto element = static_cast<int64_t>(DTypeBytes(dtype_));
  std::vector<size_t> tensors;
  std::vector<MasterRun> runs;
  for (size_t tensor = 0; tensor < runs_.size(); ++tensor) {
    const ShardPlan::Piece& piece = plan_->mine(tensor);
    const int64_t from = std::max(first, piece.offset);
    const int64_t to = std::min(first + count, piece.offset + piece.elements);
    if (to <= from) continue;
    const int64_t row_start = piece.row * plan_->tensors()[tensor]->cols() * element;
    if (from == piece.offset) runs_[tensor] = DigestRun(row_start);
    tensors.push_back(tensor);
    runs.push_back(
        {masters + (from - first), to - from, row_start + (from - piece.offset) * element});
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<DigestRun> digests, ops.Digest(runs, dtype_));
  for (size_t i = 0; i < runs.size(); ++i) runs_[tensors[i]].Join(digests[i]);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Digest>> MasterDigests::OfTensors(Communicator& communicator) const {
  const auto world = static_cast<size_t>(plan_->world_size());
  const size_t bytes = runs_.size() * DigestRun::kWireBytes;
  std::vector<std::byte> mine(bytes), all(world * bytes);
  for (size_t tensor = 0; tensor < runs_.size(); ++tensor) {
    runs_[tensor].ToBytes(mine.data() + tensor * DigestRun::kWireBytes);
  }
  TANDEM_RETURN_IF_ERROR(
      communicator.host().AllGather(mine.data(), static_cast<int64_t>(bytes), all.data()));
  const auto element = static_cast<int64_t>(DTypeBytes(dtype_));
  std::vector<Digest> digests;
  for (const TensorPlace& place : plan_->layout().places()) {
    const size_t tensor = plan_->IndexOf(place);
    DigestRun whole;
    for (size_t rank = 0; rank < world; ++rank) {
      if (plan_->piece(tensor, static_cast<int>(rank)).rows == 0) continue;
      const DigestRun part =
          DigestRun::FromBytes(all.data() + rank * bytes + tensor * DigestRun::kWireBytes);
      if (part.begin() != whole.end()) break;
      whole.Join(part);
    }
    if (whole.end() != NumElements(place.shape) * element) {
      return Internal("{}: the masters were digested up to byte {} of {}", place.name, whole.end(),
                      NumElements(place.shape) * element);
    }
    digests.push_back(whole.Finish());
  }
  return digests;
}

}  // namespace tandem
