#include "common/comm/hosts/peer_exchange.h"

#include <algorithm>
#include <utility>

#include <poll.h>

#include "common/base/progress.h"
#include "common/base/status.h"

namespace tandem {
namespace {

// So many bytes at a time for one rank, so that all others move as well.
constexpr size_t kTurnBytes = 256 << 10;
// How often a rank that waits looks at the clock.
constexpr absl::Duration kSlice = absl::Milliseconds(100);
// A rank that fails says why on one connection and closes another; the two may come in any order.
constexpr absl::Duration kReasonTime = absl::Seconds(5);

}  // namespace

PeerExchange::PeerExchange(int rank,
                           int64_t generation,
                           std::vector<std::unique_ptr<TcpConnection>> connections,
                           GroupWatch* watch,
                           Clock* clock)
    : rank_(rank),
      generation_(generation),
      connections_(std::move(connections)),
      watch_(watch),
      clock_(clock) {}

void PeerExchange::Begin(CallName call, absl::Duration timeout) {
  call_ = call;
  timeout_ = timeout;
  deadline_ = clock_->Now() + timeout;
}

absl::Status PeerExchange::Run(Flow& flow) {
  while (true) {
    // Read before bytes are looked for: those that are there by then are in time, however long this
    // thread is delayed afterwards.
    const absl::Duration left = deadline_ - clock_->Now();
    TANDEM_ASSIGN_OR_RETURN(const bool moved, Move(flow));
    if (Done(flow)) return absl::OkStatus();
    TANDEM_RETURN_IF_ERROR(watch_->status());
    if (left <= absl::ZeroDuration()) return watch_->Fail(TooLate(flow));
    if (!moved) Wait(flow, left);
  }
}

bool PeerExchange::Done(const Flow& flow) const {
  for (int rank = 0; rank < static_cast<int>(connections_.size()); ++rank) {
    if (rank != rank_ && !flow.DoneWith(rank)) return false;
  }
  return true;
}

absl::StatusOr<bool> PeerExchange::Move(Flow& flow) {
  bool moved = false;
  const int world = static_cast<int>(connections_.size());
  for (int step = 1; step < world; ++step) {
    // Each rank begins with the one after it, so that they do not all turn to the same one.
    const int rank = (rank_ + step) % world;
    TANDEM_ASSIGN_OR_RETURN(const bool went, SendTo(rank, flow));
    TANDEM_ASSIGN_OR_RETURN(const bool came, ReceiveFrom(rank, flow));
    moved = moved || went || came;
  }
  if (moved) NoteProgress();
  return moved;
}

absl::StatusOr<bool> PeerExchange::SendTo(int rank, Flow& flow) {
  const std::span<const std::byte> bytes = flow.ToSend(rank);
  if (bytes.empty()) return false;
  const auto sent = connections_[static_cast<size_t>(rank)]->SendSome(
      bytes.data(), static_cast<int64_t>(std::min(bytes.size(), kTurnBytes)));
  if (!sent.ok()) return Gone(rank);
  if (*sent > 0) flow.Sent(rank, *sent);
  return *sent > 0;
}

absl::StatusOr<bool> PeerExchange::ReceiveFrom(int rank, Flow& flow) {
  const std::span<std::byte> room = flow.Room(rank);
  if (room.empty()) return false;
  const auto came = connections_[static_cast<size_t>(rank)]->ReceiveSome(
      room.data(), static_cast<int64_t>(std::min(room.size(), kTurnBytes)));
  if (!came.ok()) return Gone(rank);
  if (*came > 0) flow.Received(rank, *came);
  return *came > 0;
}

void PeerExchange::Wait(Flow& flow, absl::Duration left) {
  std::vector<pollfd> entries = {{watch_->ended_fd(), POLLIN, 0}};
  for (int rank = 0; rank < static_cast<int>(connections_.size()); ++rank) {
    if (rank == rank_) continue;
    const TcpConnection& connection = *connections_[static_cast<size_t>(rank)];
    short events = flow.ToSend(rank).empty() ? short{0} : connection.send_waits();
    if (!flow.Room(rank).empty()) {
      events = static_cast<short>(events | connection.receive_waits());
    }
    // One that has nothing to do is left out: poll would report its end again and again.
    if (events != 0) entries.push_back({connection.fd(), events, 0});
  }
  const OutsideWait wait;
  poll(entries.data(), entries.size(),
       static_cast<int>(
           absl::ToInt64Milliseconds(absl::Ceil(std::min(left, kSlice), absl::Milliseconds(1)))));
}

absl::Status PeerExchange::Gone(int rank) {
  TANDEM_RETURN_IF_ERROR(watch_->AwaitReason(rank, RealClock().Now() + kReasonTime));
  return watch_->Fail(
      MakeStatus(absl::StatusCode::kUnavailable,
                 "rank {} is gone: rank {} was waiting for it in {} (call {}, generation {})", rank,
                 rank_, call_.collective, call_.number, generation_));
}

absl::Status PeerExchange::TooLate(const Flow& flow) const {
  std::string absent;
  for (int rank = 0; rank < static_cast<int>(connections_.size()); ++rank) {
    if (rank == rank_ || flow.DoneWith(rank)) continue;
    absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
  }
  return MakeStatus(
      absl::StatusCode::kDeadlineExceeded,
      "rank {} of {} did not come: rank {} waited {} for it in {} (call {}, generation {})", absent,
      connections_.size(), rank_, absl::FormatDuration(timeout_), call_.collective, call_.number,
      generation_);
}

}  // namespace tandem
