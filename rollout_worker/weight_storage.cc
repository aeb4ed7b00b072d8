#include "rollout_worker/weight_storage.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/status_macros.h"
#include "common/tensor_file/checkpoint_dir.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<WeightStorage>> WeightStorage::Create(const WeightLayout* layout,
                                                                     Ledger* ledger) {
  std::unique_ptr<WeightStorage> storage(new WeightStorage(layout, ledger));
  TANDEM_ASSIGN_OR_RETURN(storage->device_,
                          MemoryRegion::Reserve("weights", layout->total_bytes(), ledger));
  return storage;
}

WeightStorage::~WeightStorage() { FreeHostCopy(); }

absl::Status WeightStorage::MoveToHost() {
  if (host_ != nullptr) return absl::OkStatus();
  if (!mapped()) return FailedPrecondition("there are no weights to move to host memory");
  // The region counts as device memory under its own ledger, so this one is counted by hand.
  TANDEM_ASSIGN_OR_RETURN(auto host, MemoryRegion::Reserve("weights", bytes(), nullptr));
  TANDEM_RETURN_IF_ERROR(host->Map());
  std::memcpy(host->data(), data(), static_cast<size_t>(bytes()));
  TANDEM_RETURN_IF_ERROR(device_->Release());
  host_ = std::move(host);
  ledger_->Add("weights", Location::kHost, bytes());
  return absl::OkStatus();
}

absl::Status WeightStorage::MoveToDevice() {
  if (host_ == nullptr) return FailedPrecondition("there are no weights in host memory");
  TANDEM_RETURN_IF_ERROR(device_->Map());
  std::memcpy(data(), host_->data(), static_cast<size_t>(bytes()));
  FreeHostCopy();
  return absl::OkStatus();
}

absl::Status WeightStorage::LoadCheckpoint(const std::string& model_dir, const ModelSpec& spec) {
  // Rows are converted in pieces that stay in cache.
  constexpr int64_t kPieceBytes = 1 << 20;
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, HfCheckpoint::Open(model_dir, spec));
  std::vector<std::byte> piece;
  for (const TensorPlace& place : layout_->places()) {
    const auto row_bytes = place.cols() * static_cast<int64_t>(DTypeBytes(layout_->dtype()));
    const int64_t step = std::max<int64_t>(1, kPieceBytes / row_bytes);
    piece.resize(static_cast<size_t>(step * row_bytes));
    std::byte* const group = data() + layout_->group_offset(place.layer);
    for (int64_t row = 0; row < place.rows(); row += step) {
      const int64_t rows = std::min(step, place.rows() - row);
      TANDEM_RETURN_IF_ERROR(
          checkpoint->ReadRows(place.name, row, rows, layout_->dtype(), piece.data()));
      layout_->WriteRows(group, place, row, rows, piece.data());
    }
  }
  return absl::OkStatus();
}

absl::Status WeightStorage::Drop() {
  FreeHostCopy();
  return device_->Release();
}

void WeightStorage::FreeHostCopy() {
  if (host_ == nullptr) return;
  host_.reset();
  ledger_->Add("weights", Location::kHost, -bytes());
}

}  // namespace tandem
