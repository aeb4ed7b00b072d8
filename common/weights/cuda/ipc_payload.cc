#include <cstring>

#include "common/base/status_macros.h"
#include "common/weights/cuda/ipc_slots.h"

namespace tandem {
namespace {

constexpr size_t kUuidBytes = 32;

struct Fixed {
  int64_t mapping = 0;
  int64_t lasting = 0;
  int64_t slots = 0;
  char uuid[kUuidBytes] = {};
  CudaIpcHandle memory;
};

}  // namespace

std::string IpcPayload::ToBytes() const {
  Fixed fixed = {mapping, lasting ? 1 : 0, static_cast<int64_t>(filled.size()), {}, memory};
  memcpy(fixed.uuid, uuid.data(), std::min(uuid.size(), kUuidBytes));
  std::string bytes(reinterpret_cast<const char*>(&fixed), sizeof(fixed));
  for (const auto* events : {&filled, &drained}) {
    for (const CudaIpcHandle& event : *events) {
      bytes.append(reinterpret_cast<const char*>(event.bytes.data()), event.bytes.size());
    }
  }
  return bytes;
}

absl::StatusOr<IpcPayload> IpcPayload::FromBytes(const std::string& bytes) {
  Fixed fixed;
  constexpr size_t kHandle = sizeof(CudaIpcHandle);
  if (bytes.size() >= sizeof(fixed)) memcpy(&fixed, bytes.data(), sizeof(fixed));
  const size_t events = bytes.size() < sizeof(fixed) ? 0 : (bytes.size() - sizeof(fixed)) / kHandle;
  if (fixed.slots < 1 || bytes.size() != sizeof(fixed) + events * kHandle ||
      events != 2 * static_cast<size_t>(fixed.slots)) {
    return InvalidArgument("{} bytes are no handle of slots on a GPU", bytes.size());
  }
  IpcPayload payload;
  payload.mapping = fixed.mapping;
  payload.lasting = fixed.lasting != 0;
  payload.uuid.assign(fixed.uuid, strnlen(fixed.uuid, kUuidBytes));
  payload.memory = fixed.memory;
  const char* at = bytes.data() + sizeof(fixed);
  for (auto* handles : {&payload.filled, &payload.drained}) {
    handles->resize(static_cast<size_t>(fixed.slots));
    for (CudaIpcHandle& handle : *handles) {
      memcpy(handle.bytes.data(), at, kHandle);
      at += kHandle;
    }
  }
  return payload;
}

}  // namespace tandem
