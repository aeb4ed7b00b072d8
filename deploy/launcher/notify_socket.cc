#include "deploy/launcher/notify_socket.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include <sys/socket.h>
#include <sys/un.h>

#include "common/base/status.h"

namespace tandem {

absl::StatusOr<NotifySocket> NotifySocket::Open() {
  UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  socklen_t size = sizeof(name.sun_family);  // binding to no path gives an abstract name
  const bool bound =
      fd.get() >= 0 && bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), size) == 0;
  size = sizeof(name);
  if (!bound || getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &size) != 0) {
    return Internal("cannot open a socket for the controller's signs of life: {}",
                    std::strerror(errno));
  }
  std::string text(name.sun_path, size - offsetof(sockaddr_un, sun_path));
  text.front() = '@';
  return NotifySocket(std::move(fd), std::move(text));
}

bool NotifySocket::TakeSignOfLife() {
  bool alive = false;
  char message[256];
  while (true) {
    const ssize_t bytes = recv(fd_.get(), message, sizeof(message), 0);
    if (bytes < 0) return alive;
    const std::string_view text(message, static_cast<size_t>(bytes));
    alive = alive || text.find("WATCHDOG=1") != std::string_view::npos;
  }
}

}  // namespace tandem
