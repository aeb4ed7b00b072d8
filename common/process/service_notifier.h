// Tells the supervisor of this process that it is ready and alive, by the protocol of systemd's
// sd_notify(3): datagrams to the Unix socket that NOTIFY_SOCKET names.
#pragma once

#include <string>

#include <absl/time/time.h>

#include "common/base/clock.h"

namespace tandem {

// Does nothing where the environment has no NOTIFY_SOCKET. A message that cannot be sent is
// dropped: the supervisor then acts as if this process had stopped. Not thread-safe.
class ServiceNotifier {
 public:
  // Reads NOTIFY_SOCKET and, for KeepAlive, WATCHDOG_USEC and WATCHDOG_PID; removes them, so that
  // children of this process do not speak for it.
  explicit ServiceNotifier(Clock& clock = RealClock());

  // Thread-safe.
  void Ready() const { Send("READY=1"); }
  // Call it often: sends a sign of life when interval() has passed since the last one.
  void KeepAlive();
  // A third of the watchdog's time; InfiniteDuration: there is no watchdog.
  absl::Duration interval() const { return interval_; }

 private:
  void Send(const std::string& message) const;

  Clock& clock_;
  std::string socket_;                                  // empty: no supervisor
  absl::Duration interval_ = absl::InfiniteDuration();  // between two signs of life
  Instant last_ = Instant::InfinitePast();
};

}  // namespace tandem
