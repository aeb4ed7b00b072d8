#include "trainer_worker/shard/host_staging.h"

#include "common/base/status_macros.h"

namespace tandem {

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
