// Receives what the controller says of itself by the protocol of systemd's sd_notify(3).
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "common/process/local_socket.h"

namespace tandem {

// A datagram socket with a name that the kernel makes up, so that no file is left behind. Any
// process of this user may send to it; what does not read WATCHDOG=1 is ignored. Not thread-safe.
class NotifySocket {
 public:
  // Internal: the system gives no socket.
  static absl::StatusOr<NotifySocket> Open();

  // For NOTIFY_SOCKET in the controller's environment.
  const std::string& name() const { return name_; }
  // Whether a sign of life came since the last call. Does not block.
  bool TakeSignOfLife();

 private:
  NotifySocket(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  UniqueFd fd_;
  std::string name_;
};

}  // namespace tandem
