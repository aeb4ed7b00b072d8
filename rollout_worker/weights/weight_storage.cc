#include "rollout_worker/weights/weight_storage.h"

#include <algorithm>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/formats/hf_checkpoint.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<WeightStorage>> WeightStorage::Create(Device* device,
                                                                     const WeightLayout* layout,
                                                                     Ledger* ledger) {
  std::unique_ptr<WeightStorage> storage(new WeightStorage(device, layout, ledger));
  TANDEM_ASSIGN_OR_RETURN(storage->storage_,
                          device->Reserve("weights", layout->total_bytes(), ledger));
  return storage;
}

absl::Status WeightStorage::MoveToHost() {
  if (on_host_) return absl::OkStatus();
  if (!mapped()) return FailedPrecondition("there are no weights to move to host memory");
  if (host_ == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(auto host, device_->ReserveHost("weights", bytes(), ledger_));
    TANDEM_RETURN_IF_ERROR(host->Map());
    host_ = std::move(host);
  }
  device_->Copy(host_->data(), data(), bytes());
  TANDEM_RETURN_IF_ERROR(device_->Synchronize());
  TANDEM_RETURN_IF_ERROR(storage_->Release());
  on_host_ = true;
  return absl::OkStatus();
}

absl::Status WeightStorage::MoveToDevice() {
  if (!on_host_) return FailedPrecondition("there are no weights in host memory");
  TANDEM_RETURN_IF_ERROR(storage_->Map());
  device_->Copy(data(), host_->data(), bytes());
  TANDEM_RETURN_IF_ERROR(device_->Synchronize());
  on_host_ = false;
  if (device_->is_host()) host_.reset();
  return absl::OkStatus();
}

absl::Status WeightStorage::LoadCheckpoint(const std::string& model_dir,
                                           const ModelSpec& spec,
                                           StorageOps& ops) {
  // Rows are converted in pieces that fit the cache.
  constexpr int64_t kPieceBytes = 1 << 20;
  TANDEM_ASSIGN_OR_RETURN(const auto checkpoint, HfCheckpoint::Open(model_dir, spec));
  std::vector<std::byte> piece;
  // A checkpoint has no adapters, so they stay zero.
  const size_t tensors = layout_->base_tensors();
  for (const TensorPlace& place : std::span(layout_->places()).first(tensors)) {
    const auto row_bytes = place.cols() * static_cast<int64_t>(DTypeBytes(layout_->dtype()));
    const int64_t step = std::max<int64_t>(1, kPieceBytes / row_bytes);
    piece.resize(static_cast<size_t>(step * row_bytes));
    for (int64_t row = 0; row < place.rows(); row += step) {
      const int64_t rows = std::min(step, place.rows() - row);
      TANDEM_RETURN_IF_ERROR(
          checkpoint->ReadRows(place.name, row, rows, layout_->dtype(), piece.data()));
      TANDEM_RETURN_IF_ERROR(ops.StoreRows({{&place, row, rows, piece.data()}}, Location::kHost));
      // The copy must finish before the next read overwrites the piece.
      TANDEM_RETURN_IF_ERROR(device_->Synchronize());
    }
  }
  return absl::OkStatus();
}

absl::Status WeightStorage::Drop() {
  host_.reset();
  on_host_ = false;
  return storage_->Release();
}

}  // namespace tandem
