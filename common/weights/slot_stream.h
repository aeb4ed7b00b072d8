// The payload of a weight update over a TCP connection, between hosts that share no memory: the
// trainer's filled slots go one after the other into the rollout's own slots of the same index.
//
// The trainer dials the rollout's data listener (tcp/slot_listener.h) and says a StreamHello, with
// the ticket that BeginUpdate's answer carried. The rollout answers with the update's number, or
// closes the connection. Then come frames: a FrameHeader, and the bytes of one filled slot. No slot
// is sent again before the rollout has applied it. The connection ends with the update, and each
// end notices by it that the other one died.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/bounded_queue.h"
#include "common/base/mutex.h"
#include "common/process/threads.h"
#include "common/tcp/tcp_connection.h"
#include "common/tcp/tcp_security.h"
#include "common/weights/weight_transport.h"

namespace tandem {

// Random, for one update: whoever knows it was told by the rollout, over gRPC.
using StreamTicket = std::array<std::byte, 16>;

// The first bytes of a connection, as they are on the wire. Both hosts are little-endian, or the
// magic number differs.
struct StreamHello {
  static constexpr uint64_t kMagic = 0x31574d45444e4154;  // "TANDEMW1"
  uint64_t magic = kMagic;
  int64_t update_number = 0;
  StreamTicket ticket = {};
  int64_t slot_bytes = 0;
  int64_t slots = 0;
};

// A frame is moved in parts, each with a limit of its own, so that a slow link may need longer for
// a frame than one that stands still gets.
inline constexpr int64_t kFramePart = 256 << 10;

struct FrameHeader {
  int64_t update_number = 0;
  int64_t sequence = 0;  // of the frame in its update, from 0
  int64_t slot = 0;
  int64_t bytes = 0;  // that follow; at most those of a slot
};

// Where the slots of one update go.
struct StreamTarget {
  std::string address;  // of the rollout's data listener, "host:port"
  std::string ticket;   // the bytes of a StreamTicket
  int64_t update_number = 0;
  SlotShape shape;
};

// The trainer's end. Send and status are for one thread; a thread of its own sends.
class SlotSender {
 public:
  // Dials, and waits until the rollout has accepted the connection. A frame may take as long as it
  // moves on: `timeout` is also that of each part of one (kFramePart). Unavailable: nobody listens,
  // or the rollout closed the connection, as it does if ticket, update or slots are not those that
  // it waits for. DeadlineExceeded.
  static absl::StatusOr<std::unique_ptr<SlotSender>> Dial(const StreamTarget& target,
                                                          const TcpSecurity& security,
                                                          absl::Duration timeout);
  ~SlotSender();  // closes the connection

  // Returns at once. The bytes must not change until the rollout has applied them, or this is
  // stopped. An error of an earlier frame: Unavailable, or DeadlineExceeded.
  absl::Status Send(int slot, const std::byte* data, int64_t bytes);
  absl::Status status() const;
  // Whether nothing goes any more: an error, the other end has closed the connection, or its
  // machine does not answer (kPeerSilence).
  bool closed() const { return !status().ok() || connection_->closed(); }
  // Closes the connection, also within a frame, and returns when nothing is read any more.
  void Stop();

 private:
  struct Frame {
    FrameHeader header;
    const std::byte* data = nullptr;
  };
  SlotSender(const StreamTarget& target,
             std::unique_ptr<TcpConnection> connection,
             absl::Duration timeout);
  void Run();
  absl::Status SendFrame(const Frame& frame);

  const StreamTarget target_;
  const absl::Duration timeout_;
  const std::unique_ptr<TcpConnection> connection_;
  int64_t next_ = 0;  // sequence
  BoundedQueue<Frame> frames_;
  mutable Mutex status_mutex_;
  absl::Status status_ ABSL_GUARDED_BY(status_mutex_);
  NamedThread thread_;
};

// The rollout's end: a thread reads frames straight into the slots, also while the slots that came
// before are being applied. Await, Free, ended and why are for any thread.
class SlotReceiver {
 public:
  // `slots` is the first byte of the first slot; the memory outlives this. `timeout`: how long each
  // part of a frame may take (kFramePart).
  SlotReceiver(std::unique_ptr<TcpConnection> connection,
               int64_t update_number,
               const SlotShape& shape,
               std::byte* slots,
               absl::Duration timeout);
  ~SlotReceiver();  // closes the connection

  // Waits until `slot` is filled. DeadlineExceeded: it is not, and nothing came for `timeout`.
  // Otherwise why the connection has ended.
  absl::Status Await(int slot, absl::Duration timeout);
  // The slot may be filled again.
  void Free(int slot);
  // Whether no frame comes any more: the trainer closed the connection or died, or sent what it may
  // not send.
  bool ended() const { return !why().ok(); }
  absl::Status why() const;

 private:
  void Run();
  absl::Status ReceiveFrame(int64_t sequence);
  absl::Status CheckHeader(const FrameHeader& header, int64_t sequence) const;

  const std::unique_ptr<TcpConnection> connection_;
  const int64_t update_number_;
  const SlotShape shape_;
  std::byte* const slots_;
  const absl::Duration timeout_;
  mutable Mutex slots_mutex_;
  ConditionVariable changed_;
  std::vector<bool> filled_ ABSL_GUARDED_BY(slots_mutex_);
  int64_t parts_ ABSL_GUARDED_BY(slots_mutex_) = 0;  // that came
  absl::Status end_ ABSL_GUARDED_BY(slots_mutex_);   // OK until the connection has ended
  NamedThread thread_;
};

}  // namespace tandem
