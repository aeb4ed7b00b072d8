#include "trainer_worker/shard/shard_array.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<ShardArray>> ShardArray::Create(Device* device,
                                                               const std::string& tag,
                                                               int64_t elements,
                                                               int64_t element_bytes,
                                                               const std::string& offload_dir,
                                                               Ledger* ledger) {
  // A rank without a single row still has arrays: one element keeps them valid.
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

}  // namespace tandem
