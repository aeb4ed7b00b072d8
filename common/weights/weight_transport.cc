#include "common/weights/weight_transport.h"

#include "common/base/status.h"

namespace tandem {

absl::StatusOr<std::string> ChooseTransport(const std::string& key) {
  if (key != "auto" && key != "shm") {
    return FailedPrecondition(
        "weight_sync.transport={}: this worker runs on a CPU, which has shared memory alone; set "
        "auto or shm",
        key);
  }
  return fmt::format(
      "weight transport: shm (a memfd over the pair's socket), {}",
      key == "auto" ? "chosen because the device is a CPU" : "as weight_sync.transport says");
}

absl::StatusOr<CudaTransportChoice> ChooseCudaTransport(const std::string& key,
                                                        const absl::Status& ipc) {
  if (key != "auto" && key != "ipc" && key != "shm") {
    return InvalidArgument("weight_sync.transport={} is none of auto, ipc and shm", key);
  }
  if (key == "ipc" && !ipc.ok()) {
    return FailedPrecondition("weight_sync.transport=ipc: {}; set auto or shm",
                              std::string(ipc.message()));
  }
  if (key != "shm" && ipc.ok()) {
    return CudaTransportChoice{
        true, fmt::format("weight transport: ipc (CUDA memory and events by handle), {}",
                          key == "auto" ? "chosen because the device can hand out its memory"
                                        : "as weight_sync.transport says")};
  }
  return CudaTransportChoice{
      false, fmt::format("weight transport: shm (pinned, a memfd over the pair's socket), {}",
                         key == "auto"
                             ? "chosen because CUDA IPC is refused: " + std::string(ipc.message())
                             : "as weight_sync.transport says")};
}

}  // namespace tandem
