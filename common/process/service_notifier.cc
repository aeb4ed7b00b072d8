#include "common/process/service_notifier.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <absl/strings/numbers.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace tandem {
namespace {

std::string TakeFromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value == nullptr ? "" : value;
  unsetenv(name);
  return text;
}

}  // namespace

ServiceNotifier::ServiceNotifier(Clock& clock)
    : clock_(clock), socket_(TakeFromEnvironment("NOTIFY_SOCKET")) {
  const std::string microseconds = TakeFromEnvironment("WATCHDOG_USEC");
  const std::string watched = TakeFromEnvironment("WATCHDOG_PID");
  int64_t limit = 0;
  const bool is_for_us = watched.empty() || watched == std::to_string(getpid());
  if (is_for_us && absl::SimpleAtoi(microseconds, &limit) && limit > 0) {
    interval_ = absl::Microseconds(limit) / 3;
  }
}

void ServiceNotifier::KeepAlive() {
  const Instant now = clock_.Now();
  if (now - last_ < interval_) return;
  last_ = now;
  if (interval_ < absl::InfiniteDuration()) Send("WATCHDOG=1");
}

void ServiceNotifier::Send(const std::string& message) const {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (socket_.empty() || socket_.size() >= sizeof(name.sun_path)) return;
  std::memcpy(name.sun_path, socket_.data(), socket_.size());
  if (name.sun_path[0] == '@') name.sun_path[0] = '\0';  // an abstract name
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  (void)sendto(fd, message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&name), size);
  close(fd);
}

}  // namespace tandem
