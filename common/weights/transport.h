// Which way the slots of an update are shared between the two processes of a pair.
#pragma once

#include <string>

#include <absl/status/statusor.h>

namespace tandem {

// What weight_sync.transport comes to for workers on a CPU, as a line for the log: what was chosen
// and why. FailedPrecondition: a transport that this device does not have.
absl::StatusOr<std::string> ChooseTransport(const std::string& key);

struct CudaTransportChoice {
  bool ipc = false;  // else pinned shared memory
  std::string why;   // a line for the log
};

// The same for workers on a GPU. `ipc`: whether the device's memory can be handed out, or why not.
// FailedPrecondition: ipc is asked for and refused. InvalidArgument: no such transport.
absl::StatusOr<CudaTransportChoice> ChooseCudaTransport(const std::string& key,
                                                        const absl::Status& ipc);

}  // namespace tandem
