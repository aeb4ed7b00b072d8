#include "common/tcp/socket_wait.h"

#include <algorithm>
#include <cerrno>

#include <poll.h>

namespace tandem {

bool WaitForSocket(int fd, short events, Instant deadline) {
  while (true) {
    const absl::Duration left = std::max(absl::ZeroDuration(), deadline - RealClock().Now());
    pollfd entry = {fd, events, 0};
    const auto milliseconds = static_cast<int>(std::min<int64_t>(
        absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))), 1'000'000'000));
    const int ready = poll(&entry, 1, milliseconds);
    // An error of poll itself is left to the call that follows, which will have it, too.
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (ready == 0 && RealClock().Now() >= deadline) return false;
  }
}

}  // namespace tandem
