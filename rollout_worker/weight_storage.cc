#include "rollout_worker/weight_storage.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/status_macros.h"
#include "common/tensor_file/hf_checkpoint.h"

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
