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

}  // namespace

absl::StatusOr<std::unique_ptr<SlotSender>> SlotSender::Dial(const StreamTarget& target,
                                                             const TcpSecurity& security,
                                                             absl::Duration timeout) {
  StreamHello hello = {.update_number = target.update_number,
                       .slot_bytes = target.shape.slot_bytes,
                       .slots = target.shape.slots};
  if (target.ticket.size() != hello.ticket.size()) {
    return InvalidArgument("the rollout's ticket for update {} has {} bytes, not {}",
                           target.update_number, target.ticket.size(), hello.ticket.size());
  }
  memcpy(hello.ticket.data(), target.ticket.data(), hello.ticket.size());
  const Instant deadline = After(timeout);
  const OutsideWait wait;
  auto connection = DialTcp(target.address, security, deadline);
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
  return std::unique_ptr<SlotSender>(new SlotSender(target, *std::move(connection), timeout));
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
  return absl::OkStatus();
}

absl::Status SlotSender::status() const {
  const MutexLock lock(status_mutex_);
  return status_;
}

absl::Status SlotSender::SendFrame(const Frame& frame) {
  TANDEM_RETURN_IF_ERROR(connection_->Send(&frame.header, sizeof(frame.header), After(timeout_)));
  return InParts(frame.header.bytes, [&](int64_t at, int64_t bytes) {
    return connection_->Send(frame.data + at, bytes, After(timeout_));
  });
}

void SlotSender::Run() {
  while (const auto frame = frames_.Pop()) {
    const absl::Status sent = SendFrame(*frame);
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
                           absl::Duration timeout)
    : connection_(std::move(connection)),
      update_number_(update_number),
      shape_(shape),
      slots_(slots),
      timeout_(timeout),
      filled_(static_cast<size_t>(shape.slots), false),
      thread_("weights in", [this] { Run(); }) {}

SlotReceiver::~SlotReceiver() {
  connection_->Shutdown();
  thread_.Join();
}

absl::Status SlotReceiver::Await(int slot, absl::Duration timeout) {
  const OutsideWait wait;
  const MutexLock lock(slots_mutex_);
  auto deadline = SteadyAfter(timeout);
  int64_t parts = parts_;
  while (!filled_[static_cast<size_t>(slot)]) {
    if (!end_.ok()) return end_;
    if (changed_.WaitUntil(slots_mutex_, deadline)) continue;
    if (filled_[static_cast<size_t>(slot)]) break;
    if (std::exchange(parts, parts_) != parts_) {
      deadline = SteadyAfter(timeout);
      continue;
    }
    return MakeStatus(absl::StatusCode::kDeadlineExceeded,
                      "the trainer at {} did not send slot {} of update {} within {}",
                      connection_->peer(), slot, update_number_, absl::FormatDuration(timeout));
  }
  return absl::OkStatus();
}

void SlotReceiver::Free(int slot) {
  const MutexLock lock(slots_mutex_);
  filled_[static_cast<size_t>(slot)] = false;
}

absl::Status SlotReceiver::why() const {
  {
    const MutexLock lock(slots_mutex_);
    if (!end_.ok()) return end_;
  }
  // Whole frames may still lie in the socket; they are of no use without the calls that name them.
  if (!connection_->closed()) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kUnavailable, "the trainer at {} has closed the connection",
                    connection_->peer());
}

absl::Status SlotReceiver::CheckHeader(const FrameHeader& header, int64_t sequence) const {
  if (header.update_number != update_number_ || header.sequence != sequence) {
    return InvalidArgument("frame {} of update {} came where frame {} of update {} was due",
                           header.sequence, header.update_number, sequence, update_number_);
  }
  if (header.slot < 0 || header.slot >= shape_.slots || header.bytes < 0 ||
      header.bytes > shape_.slot_bytes) {
    return InvalidArgument("{} bytes came for slot {} of {} slots of {} bytes", header.bytes,
                           header.slot, shape_.slots, shape_.slot_bytes);
  }
  const MutexLock lock(slots_mutex_);
  if (!filled_[static_cast<size_t>(header.slot)]) return absl::OkStatus();
  return InvalidArgument("slot {} was sent again before it was applied", header.slot);
}

absl::Status SlotReceiver::ReceiveFrame(int64_t sequence) {
  FrameHeader header;
  // The trainer may gather for as long as it needs between two buckets; its death ends the wait.
  TANDEM_RETURN_IF_ERROR(connection_->Receive(&header, sizeof(header), Instant::InfiniteFuture()));
  TANDEM_RETURN_IF_ERROR(CheckHeader(header, sequence));
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
  const MutexLock lock(slots_mutex_);
  filled_[static_cast<size_t>(header.slot)] = true;
  changed_.NotifyAll();
  return absl::OkStatus();
}

void SlotReceiver::Run() {
  absl::Status received;
  for (int64_t sequence = 0; received.ok(); ++sequence) received = ReceiveFrame(sequence);
  connection_->Shutdown();
  const MutexLock lock(slots_mutex_);
  end_ = Annotate(received,
                  fmt::format("the data connection from the trainer at {}", connection_->peer()));
  changed_.NotifyAll();
}

}  // namespace tandem
