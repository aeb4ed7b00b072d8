#include "common/weights/slot_stream.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "common/base/clock.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/tcp/tcp_listener.h"

namespace tandem {
namespace {

static_assert(sizeof(StreamHello) == 48 && sizeof(FrameHeader) == 32,
              "hellos and headers are on the wire as they are in memory");

// Frames that wait to be sent: one for each slot, of which there are two at most.
constexpr size_t kQueuedFrames = 4;

Instant After(absl::Duration timeout) { return RealClock().Now() + timeout; }

std::chrono::steady_clock::time_point SteadyAfter(absl::Duration timeout) {
  return std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
}

template <typename Move>
absl::Status InParts(int64_t bytes, const Move& move) {
  for (int64_t at = 0; at < bytes; at += kFramePart) {
    TANDEM_RETURN_IF_ERROR(move(at, std::min(kFramePart, bytes - at)));
  }
  return absl::OkStatus();
}

// How long before files that do not fit together are read again.
constexpr absl::Duration kFilePause = absl::Milliseconds(50);

absl::StatusOr<StreamHello> HelloTo(const StreamTarget& target) {
  StreamHello hello = {.update_number = target.update_number,
                       .slot_bytes = target.shape.slot_bytes,
                       .slots = target.shape.slots};
  if (target.ticket.size() != hello.ticket.size()) {
    return InvalidArgument("the rollout's ticket for update {} has {} bytes, not {}",
                           target.update_number, target.ticket.size(), hello.ticket.size());
  }
  memcpy(hello.ticket.data(), target.ticket.data(), hello.ticket.size());
  return hello;
}

// Between the replacement of a certificate and that of its key the two do not fit.
absl::StatusOr<std::unique_ptr<TcpConnection>> DialWithFiles(const std::string& address,
                                                             const TcpSecurity& security,
                                                             Instant deadline) {
  const Instant patience = std::min(deadline, After(kFileExchange));
  while (true) {
    auto connection = DialTcp(address, security, deadline);
    const bool again = absl::IsInvalidArgument(connection.status()) && security.enabled() &&
                       RealClock().Now() + kFilePause < patience;
    if (!again) return connection;
    RealClock().Sleep(kFilePause);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpConnection>> DialSlots(const StreamTarget& target,
                                                         const TcpSecurity& security,
                                                         absl::Duration timeout) {
  TANDEM_ASSIGN_OR_RETURN(const StreamHello hello, HelloTo(target));
  const Instant deadline = After(timeout);
  const OutsideWait wait;
  auto connection = DialWithFiles(target.address, security, deadline);
  if (!connection.ok()) {
    return Annotate(connection.status(),
                    fmt::format("the data connection to the rollout, {}", target.address));
  }
  TANDEM_RETURN_IF_ERROR((*connection)->Send(&hello, sizeof(hello), deadline));
  int64_t accepted = 0;
  const absl::Status answered = (*connection)->Receive(&accepted, sizeof(accepted), deadline);
  if (!answered.ok() || accepted != target.update_number) {
    return Annotate(
        answered.ok() ? absl::UnavailableError("the answer names another update") : answered,
        fmt::format("the rollout at {} did not accept the data connection of update {}, its log "
                    "says why",
                    target.address, target.update_number));
  }
  return connection;
}

absl::Status SendFrame(TcpConnection& connection,
                       const OutgoingFrame& frame,
                       absl::Duration timeout) {
  TANDEM_RETURN_IF_ERROR(connection.Send(&frame.header, sizeof(frame.header), After(timeout)));
  return InParts(frame.header.bytes, [&](int64_t at, int64_t bytes) {
    return connection.Send(frame.data + at, bytes, After(timeout));
  });
}

absl::StatusOr<std::unique_ptr<SlotSender>> SlotSender::Dial(const StreamTarget& target,
                                                             const TcpSecurity& security,
                                                             absl::Duration timeout) {
  TANDEM_ASSIGN_OR_RETURN(auto connection, DialSlots(target, security, timeout));
  return std::unique_ptr<SlotSender>(new SlotSender(target, std::move(connection), timeout));
}

SlotSender::SlotSender(const StreamTarget& target,
                       std::unique_ptr<TcpConnection> connection,
                       absl::Duration timeout)
    : target_(target),
      timeout_(timeout),
      connection_(std::move(connection)),
      frames_(kQueuedFrames),
      thread_("weights out", [this] { Run(); }) {}

SlotSender::~SlotSender() { Stop(); }

void SlotSender::Stop() {
  frames_.Close();
  connection_->Shutdown();
  thread_.Join();
}

absl::Status SlotSender::Send(int slot, const std::byte* data, int64_t bytes) {
  TANDEM_RETURN_IF_ERROR(status());
  if (!frames_.Push({{target_.update_number, next_++, slot, bytes}, data})) {
    return absl::UnavailableError("the data connection to the rollout is closed");
  }
  bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status SlotSender::status() const {
  const MutexLock lock(status_mutex_);
  return status_;
}

void SlotSender::Run() {
  while (const auto frame = frames_.Pop()) {
    const absl::Status sent = SendFrame(*connection_, *frame, timeout_);
    if (sent.ok()) continue;
    // The rollout, which waits for the frame, learns of it by the end of the connection.
    connection_->Shutdown();
    const MutexLock lock(status_mutex_);
    status_ = Annotate(
        sent, fmt::format("bucket {} of update {} did not reach the rollout at {}",
                          frame->header.sequence, frame->header.update_number, target_.address));
    return;
  }
}

SlotReceiver::SlotReceiver(std::unique_ptr<TcpConnection> connection,
                           int64_t update_number,
                           const SlotShape& shape,
                           std::byte* slots,
                           absl::Duration timeout,
                           ReceiverRole role)
    : connection_(std::move(connection)),
      update_number_(update_number),
      shape_(shape),
      slots_(slots),
      timeout_(timeout),
      role_(role),
      uses_(static_cast<size_t>(shape.slots)),
      thread_("weights in", [this] { Run(); }) {}

SlotReceiver::~SlotReceiver() {
  connection_->Shutdown();
  {
    const MutexLock lock(slots_mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.Join();
}

absl::StatusOr<int64_t> SlotReceiver::Await(int slot, absl::Duration timeout) {
  const OutsideWait wait;
  const MutexLock lock(slots_mutex_);
  const SlotUse& use = uses_[static_cast<size_t>(slot)];
  auto deadline = SteadyAfter(timeout);
  int64_t parts = parts_;
  while (!use.filled) {
    if (!end_.ok()) return end_;
    if (changed_.WaitUntil(slots_mutex_, deadline)) continue;
    if (use.filled) break;
    // What waits for room here is not late: the relay has a limit of its own.
    if (std::exchange(parts, parts_) != parts_ || waits_for_room_) {
      deadline = SteadyAfter(timeout);
      continue;
    }
    return MakeStatus(absl::StatusCode::kDeadlineExceeded,
                      "the {} at {} did not send slot {} of update {} within {}", sender(),
                      connection_->peer(), slot, update_number_, absl::FormatDuration(timeout));
  }
  return use.bytes;
}

void SlotReceiver::Free(int slot) {
  const MutexLock lock(slots_mutex_);
  uses_[static_cast<size_t>(slot)].filled = false;
  changed_.NotifyAll();
}

void SlotReceiver::Forwarded(int slot) {
  const MutexLock lock(slots_mutex_);
  uses_[static_cast<size_t>(slot)].leaving = false;
  changed_.NotifyAll();
}

absl::Status SlotReceiver::why() const {
  // Asked first: what this end refuses is noted before it closes the connection.
  const bool closed = connection_->closed();
  const MutexLock lock(slots_mutex_);
  if (complete_) return absl::OkStatus();
  if (!end_.ok()) return end_;
  // Whole frames may still lie in the socket. Those of a trainer are of no use without the calls
  // that name them, which came from it too; those of a rollout are read first.
  if (role_.from_rollout || !closed) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kUnavailable, "the trainer at {} has closed the connection",
                    connection_->peer());
}

absl::Status SlotReceiver::CheckHeader(const FrameHeader& header, int64_t sequence) const {
  if (header.update_number != update_number_ || header.sequence != sequence) {
    return InvalidArgument("frame {} of update {} came where frame {} of update {} was due",
                           header.sequence, header.update_number, sequence, update_number_);
  }
  if (role_.from_rollout && header.slot == kLastFrame && header.bytes == 0) return absl::OkStatus();
  if (header.slot < 0 || header.slot >= shape_.slots || header.bytes < 0 ||
      header.bytes > shape_.slot_bytes) {
    return InvalidArgument("{} bytes came for slot {} of {} slots of {} bytes", header.bytes,
                           header.slot, shape_.slots, shape_.slot_bytes);
  }
  const MutexLock lock(slots_mutex_);
  if (role_.from_rollout || !uses_[static_cast<size_t>(header.slot)].filled) {
    return absl::OkStatus();
  }
  return InvalidArgument("slot {} was sent again before it was applied", header.slot);
}

absl::Status SlotReceiver::AwaitRoom(size_t slot) {
  const MutexLock lock(slots_mutex_);
  waits_for_room_ = true;
  while (uses_[slot].used() && !stopping_) changed_.Wait(slots_mutex_);
  waits_for_room_ = false;
  ++parts_;  // what waits for this frame waits for the sender again
  if (stopping_) return absl::UnavailableError("the update has ended");
  return absl::OkStatus();
}

absl::Status SlotReceiver::ReceiveFrame(int64_t sequence) {
  FrameHeader header;
  // The trainer may gather for as long as it needs between two buckets; its death ends the wait.
  TANDEM_RETURN_IF_ERROR(connection_->Receive(&header, sizeof(header), Instant::InfiniteFuture()));
  TANDEM_RETURN_IF_ERROR(CheckHeader(header, sequence));
  if (header.slot == kLastFrame) {
    const MutexLock lock(slots_mutex_);
    complete_ = true;
    return absl::OkStatus();
  }
  const auto index = static_cast<size_t>(header.slot);
  TANDEM_RETURN_IF_ERROR(AwaitRoom(index));
  std::byte* const slot = slots_ + header.slot * shape_.slot_bytes;
  const absl::Status received = InParts(header.bytes, [&](int64_t at, int64_t bytes) {
    const absl::Status came = connection_->Receive(slot + at, bytes, After(timeout_));
    const MutexLock lock(slots_mutex_);
    ++parts_;
    return came;
  });
  if (!received.ok()) {
    return Annotate(received, fmt::format("frame {} of {} bytes", sequence, header.bytes));
  }
  bytes_ += header.bytes;
  const MutexLock lock(slots_mutex_);
  uses_[index] = {.filled = true, .leaving = role_.forwards, .bytes = header.bytes};
  changed_.NotifyAll();
  return absl::OkStatus();
}

void SlotReceiver::Run() {
  absl::Status received;
  for (int64_t sequence = 0; received.ok(); ++sequence) received = ReceiveFrame(sequence);
  {
    const MutexLock lock(slots_mutex_);
    end_ = Annotate(received, fmt::format("the data connection from the {} at {}", sender(),
                                          connection_->peer()));
    changed_.NotifyAll();
  }
  connection_->Shutdown();
}

}  // namespace tandem
