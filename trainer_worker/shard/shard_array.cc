#include "trainer_worker/shard/shard_array.h"

#include <algorithm>
#include <string>

#include "common/base/log.h"
#include "common/base/status.h"

namespace tandem {

absl::Status LogReleaseFailure(const absl::Status& released) {
  if (!absl::IsFailedPrecondition(released)) return released;
  LogWarn("{}", std::string(released.message()));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ShardArray>> ShardArray::Create(Device* device,
                                                               const std::string& tag,
                                                               int64_t elements,
                                                               int64_t element_bytes,
                                                               const std::string& offload_dir,
                                                               Ledger* ledger) {
  // A rank without rows still has arrays: one element keeps them valid.
  const int64_t bytes = std::max<int64_t>(elements, 1) * element_bytes;
  auto array = std::make_unique<ShardArray>();
  array->offloaded_ = !offload_dir.empty();
  array->in_host_memory_ = device->is_host() || array->offloaded_;
  if (array->offloaded_ && device->is_host()) {
    TANDEM_ASSIGN_OR_RETURN(array->file_, FileRegion::Create(tag, offload_dir, bytes, ledger));
    return array;
  }
  TANDEM_ASSIGN_OR_RETURN(array->memory_, array->offloaded_
                                              ? device->ReserveHost(tag, bytes, ledger)
                                              : device->Reserve(tag, bytes, ledger));
  TANDEM_RETURN_IF_ERROR(array->memory_->Map());
  return array;
}

void ShardArray::Evict() {
  if (file_ != nullptr) Evict(0, file_->bytes());
}

void ShardArray::Evict(int64_t offset, int64_t bytes) {
  if (file_ != nullptr) file_->Evict(offset, bytes);
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> TakeHostMemory(Device* device,
                                                             const std::string& tag,
                                                             int64_t bytes,
                                                             Ledger* ledger) {
  TANDEM_ASSIGN_OR_RETURN(auto region, device->is_host() ? device->Reserve(tag, bytes, ledger)
                                                         : device->ReserveHost(tag, bytes, ledger));
  TANDEM_RETURN_IF_ERROR(region->Map());
  return region;
}

absl::StatusOr<std::byte*> HostStaging::Room(int64_t bytes) {
  if (memory_ == nullptr || memory_->bytes() < bytes) {
    memory_.reset();
    TANDEM_ASSIGN_OR_RETURN(memory_, TakeHostMemory(device_, "gather", bytes, ledger_));
  }
  return memory_->data();
}

absl::StatusOr<const std::byte*> HostStaging::Fetch(const void* from, int64_t bytes) {
  TANDEM_ASSIGN_OR_RETURN(std::byte* const room, Room(bytes));
  device_->Copy(room, from, bytes);
  TANDEM_RETURN_IF_ERROR(device_->Synchronize());
  return room;
}

absl::StatusOr<const float*> HostStaging::Floats(const float* from, int64_t count) {
  if (device_->is_host()) return from;
  TANDEM_ASSIGN_OR_RETURN(const std::byte* const values,
                          Fetch(from, count * static_cast<int64_t>(sizeof(float))));
  return reinterpret_cast<const float*>(values);
}

}  // namespace tandem
