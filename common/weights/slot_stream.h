// The payload of a weight update over a TCP connection, between hosts that share no memory: the
// trainer's filled slots go one after the other into the rollout's own slots of the same index.
//
// The trainer dials the rollout's data listener (tcp/slot_listener.h) and says a StreamHello, with
// the ticket that BeginUpdate's answer carried. The rollout answers with the update's number, or
// closes the connection. Then come frames: a FrameHeader, and the bytes of one filled slot. No slot
// is sent again before the rollout has applied it. The connection ends with the update, and each
// end notices by it that the other one died.
//
// In a chain a rollout is sent the slots by another rollout (tcp/slot_relay.h), which no call tells
// when they have been applied. The receiver then reads no frame into a slot that is still in use,
// and the sender waits for as long as the connection takes nothing more. A frame of slot kLastFrame
// says that all have come: the connection may end before they are applied.
#pragma once

#include <array>
#include <atomic>
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

inline constexpr int64_t kLastFrame = -1;

struct FrameHeader {
  int64_t update_number = 0;
  int64_t sequence = 0;  // of the frame in its update, from 0
  int64_t slot = 0;      // or kLastFrame
  int64_t bytes = 0;     // that follow; at most those of a slot
};

// A filled slot on its way out.
struct OutgoingFrame {
  FrameHeader header;
  const std::byte* data = nullptr;
};

// What a rollout tells of its data listener, for the connection of one update. Both empty: its
// slots do not come over TCP.
struct StreamOffer {
  std::string address;
  std::string ticket;
};

// Bytes of slots that crossed connections of a rollout in an update.
struct StreamTraffic {
  int64_t received = 0;
  int64_t forwarded = 0;  // to the next rollout of a chain
};

// Where the slots of one update go.
struct StreamTarget {
  std::string address;  // of the rollout's data listener, "host:port"
  std::string ticket;   // the bytes of a StreamTicket
  int64_t update_number = 0;
  SlotShape shape;
};

// Dials, and waits until the rollout has accepted the connection. Files of `security` that do not
// fit together may be about to be replaced, and are read again for kFileExchange. Unavailable:
// nobody listens, or the rollout closed the connection, as it does if ticket, update or slots are
// not those that it waits for. DeadlineExceeded. InvalidArgument: the files.
absl::StatusOr<std::unique_ptr<TcpConnection>> DialSlots(const StreamTarget& target,
                                                         const TcpSecurity& security,
                                                         absl::Duration timeout);
inline constexpr absl::Duration kFileExchange = absl::Seconds(5);

// Sends a frame in its parts, each within `timeout`.
absl::Status SendFrame(TcpConnection& connection,
                       const OutgoingFrame& frame,
                       absl::Duration timeout);

// The trainer's end. Send and status are for one thread; a thread of its own sends.
class SlotSender {
 public:
  // Errors as of DialSlots. A frame may take as long as it moves on: `timeout` is also that of each
  // part of one (kFramePart).
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
  int64_t bytes() const { return bytes_; }  // of slots, that were given to Send
  // Closes the connection, also within a frame, and returns when nothing is read any more.
  void Stop();

 private:
  SlotSender(const StreamTarget& target,
             std::unique_ptr<TcpConnection> connection,
             absl::Duration timeout);
  void Run();

  const StreamTarget target_;
  const absl::Duration timeout_;
  const std::unique_ptr<TcpConnection> connection_;
  int64_t next_ = 0;  // sequence
  int64_t bytes_ = 0;
  BoundedQueue<OutgoingFrame> frames_;
  mutable Mutex status_mutex_;
  absl::Status status_ ABSL_GUARDED_BY(status_mutex_);
  NamedThread thread_;
};

// How a rollout is in a chain.
struct ReceiverRole {
  // A rollout sends, which no call tells when a slot has been applied: a frame waits for its slot.
  bool from_rollout = false;
  // Each slot is also read by a SlotRelay, and in use until it calls Forwarded.
  bool forwards = false;
};

// The rollout's end: a thread reads frames straight into the slots, also while the slots that came
// before are being applied. Await, Free, Forwarded, ended and why are for any thread.
class SlotReceiver {
 public:
  // `slots` is the first byte of the first slot; the memory outlives this. `timeout`: how long each
  // part of a frame may take (kFramePart).
  SlotReceiver(std::unique_ptr<TcpConnection> connection,
               int64_t update_number,
               const SlotShape& shape,
               std::byte* slots,
               absl::Duration timeout,
               ReceiverRole role = {});
  ~SlotReceiver();  // closes the connection

  // Waits until `slot` is filled, and returns its bytes. DeadlineExceeded: it is not, and nothing
  // came for `timeout`, although there was room for it. Otherwise why the connection has ended.
  absl::StatusOr<int64_t> Await(int slot, absl::Duration timeout);
  // The slot has been applied: it may be filled again, once it has been forwarded too.
  void Free(int slot);
  // The relay reads the slot no more.
  void Forwarded(int slot);
  // Whether no frame comes any more, and not all have come: the sender closed the connection or
  // died, or sent what it may not send.
  bool ended() const { return !why().ok(); }
  absl::Status why() const;
  int64_t bytes() const { return bytes_; }  // of slots, that came

 private:
  struct SlotUse {
    bool filled = false;  // and not applied
    bool leaving = false;
    int64_t bytes = 0;
    bool used() const { return filled || leaving; }
  };

  const char* sender() const { return role_.from_rollout ? "rollout" : "trainer"; }
  void Run();
  absl::Status ReceiveFrame(int64_t sequence);
  absl::Status CheckHeader(const FrameHeader& header, int64_t sequence) const;
  // Waits until the slot may be filled. Unavailable: the receiver is stopped meanwhile.
  absl::Status AwaitRoom(size_t slot);

  const std::unique_ptr<TcpConnection> connection_;
  const int64_t update_number_;
  const SlotShape shape_;
  std::byte* const slots_;
  const absl::Duration timeout_;
  const ReceiverRole role_;
  std::atomic<int64_t> bytes_ = 0;
  mutable Mutex slots_mutex_;
  ConditionVariable changed_;
  std::vector<SlotUse> uses_ ABSL_GUARDED_BY(slots_mutex_);
  int64_t parts_ ABSL_GUARDED_BY(slots_mutex_) = 0;  // that came
  bool waits_for_room_ ABSL_GUARDED_BY(slots_mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(slots_mutex_) = false;
  bool complete_ ABSL_GUARDED_BY(slots_mutex_) = false;  // the last frame has come
  absl::Status end_ ABSL_GUARDED_BY(slots_mutex_);       // OK until the connection has ended
  NamedThread thread_;
};

}  // namespace tandem
