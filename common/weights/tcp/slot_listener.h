// The rollout's data listener: the TCP port where trainers of other hosts connect to fill its
// slots, and in a chain the rollout before it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/process/threads.h"
#include "common/tcp/identity.h"
#include "common/tcp/tcp_connection.h"
#include "common/tcp/tcp_listener.h"
#include "common/weights/slot_stream.h"

namespace tandem {

// Whose connection is expected.
enum class StreamSender { kTrainer, kTrainerOrRollout };

// Threads of its own accept connections. One that does not say the hello of the update that is
// expected is closed, and the log says so once a minute at most: whoever can reach the port may
// connect. Thread-safe.
class SlotListener {
 public:
  // `address`: where others reach `listener`. `project`: that a certificate must name with the role
  // of the sender that is expected; empty: without TLS.
  SlotListener(std::unique_ptr<TcpListener> listener,
               std::string address,
               std::string project = "");
  ~SlotListener();

  // From now on the connection for this update is expected, with a new ticket, and no other one.
  absl::StatusOr<StreamOffer> Expect(int64_t update_number,
                                     const SlotShape& shape,
                                     StreamSender sender = StreamSender::kTrainer);
  // No connection is expected any more.
  void Forget();
  // The expected connection, once. DeadlineExceeded: it has not come within `timeout`.
  absl::StatusOr<std::unique_ptr<TcpConnection>> Take(absl::Duration timeout);

  const std::string& address() const { return address_; }  // what trainers dial

 private:
  void Accept();
  absl::Status Greet(std::unique_ptr<TcpConnection> connection);
  // Whether a connection with this hello is the expected one; it is then expected no more.
  absl::Status Match(const StreamHello& hello, const std::vector<CallerIdentity>& identities);
  absl::Status CheckSender(const std::vector<CallerIdentity>& identities) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(expected_mutex_);
  void TellRefusal(const std::string& text);

  const std::unique_ptr<TcpListener> listener_;
  const std::string address_;
  const std::string project_;
  Mutex expected_mutex_;
  ConditionVariable arrived_changed_;
  bool stopping_ ABSL_GUARDED_BY(expected_mutex_) = false;
  std::optional<StreamHello> expected_ ABSL_GUARDED_BY(expected_mutex_);
  StreamSender sender_ ABSL_GUARDED_BY(expected_mutex_) = StreamSender::kTrainer;
  int64_t wanted_ ABSL_GUARDED_BY(expected_mutex_) = -1;  // the number of the update that is open
  std::unique_ptr<TcpConnection> arrived_ ABSL_GUARDED_BY(expected_mutex_);
  Instant silent_until_ ABSL_GUARDED_BY(expected_mutex_);  // no refusal is logged before
  std::vector<NamedThread> acceptors_;
};

}  // namespace tandem
