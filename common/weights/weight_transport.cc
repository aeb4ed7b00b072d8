#include "common/weights/weight_transport.h"

#include "common/base/status.h"

namespace tandem {
namespace {

constexpr const char* kTcpChosen =
    "weight transport: tcp (slots of each process, filled over a connection), as "
    "weight_sync.transport says";

}  // namespace

absl::StatusOr<std::string> ChooseTransport(const std::string& key) {
  if (key != "auto" && key != "shm" && key != "tcp") {
    return FailedPrecondition(
        "weight_sync.transport={}: this worker runs on a CPU, which has no memory to hand over by "
        "CUDA IPC; set auto, shm or tcp",
        key);
  }
  if (key == "tcp") return std::string(kTcpChosen);
  return fmt::format(
      "weight transport: shm (a memfd over the pair's socket), {}",
      key == "auto" ? "chosen because the device is a CPU" : "as weight_sync.transport says");
}

absl::StatusOr<CudaTransportChoice> ChooseCudaTransport(const std::string& key,
                                                        const absl::Status& ipc) {
  if (key != "auto" && key != "ipc" && key != "shm" && key != "tcp") {
    return InvalidArgument("weight_sync.transport={} is none of auto, ipc, shm and tcp", key);
  }
  if (key == "tcp") return CudaTransportChoice{false, std::string(kTcpChosen)};
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
