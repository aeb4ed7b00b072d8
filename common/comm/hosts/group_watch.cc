#include "common/comm/hosts/group_watch.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/status.h"

namespace tandem {
namespace {

enum class Kind : uint32_t { kProgress = 1, kEnd = 2 };
constexpr uint32_t kMostTextBytes = 4096;
// A rank that leaves tells the others for so long at most why it does.
constexpr absl::Duration kFarewell = absl::Seconds(1);

struct Head {
  Kind kind = Kind::kProgress;
  uint32_t text_bytes = 0;
  uint64_t value = 0;  // the progress, or the code of the reason
};

std::string Message(Kind kind, uint64_t value, const std::string& text = "") {
  const std::string said = text.substr(0, kMostTextBytes);
  const Head head = {kind, static_cast<uint32_t>(said.size()), value};
  return std::string(reinterpret_cast<const char*>(&head), sizeof(head)) + said;
}

// A reason as every rank gives it: those that a rank's loss or lateness causes point to that rank.
absl::Status AsReason(const absl::Status& why) {
  const bool by_peer =
      absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why) || absl::IsAborted(why);
  return WithOrigin(absl::Status(why.code(), why.message()),
                    by_peer ? FailureOrigin::kAnotherRank : FailureOrigin::kHere);
}

void Signal(int fd) {
  const uint64_t one = 1;
  (void)!write(fd, &one, sizeof(one));
}

}  // namespace

GroupWatch::GroupWatch(int rank, std::vector<std::unique_ptr<TcpConnection>> connections)
    : rank_(rank),
      peers_(connections.size()),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      ended_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (size_t i = 0; i < peers_.size(); ++i) peers_[i].connection = std::move(connections[i]);
}

absl::StatusOr<std::unique_ptr<GroupWatch>> GroupWatch::Start(
    int rank, std::vector<std::unique_ptr<TcpConnection>> connections) {
  std::unique_ptr<GroupWatch> watch(new GroupWatch(rank, std::move(connections)));
  if (!watch->wake_.valid() || !watch->ended_.valid()) {
    return MakeStatus(IoErrorCode(errno), "eventfd: {}", strerror(errno));
  }
  watch->thread_ = NamedThread("group-watch", [&group = *watch] { group.Loop(); });
  return watch;
}

GroupWatch::~GroupWatch() {
  leaving_ = true;
  Wake();
  thread_.Join();
}

void GroupWatch::Wake() { Signal(wake_.get()); }

absl::Status GroupWatch::status() const {
  const MutexLock lock(watch_mutex_);
  return status_;
}

absl::Status GroupWatch::Fail(const absl::Status& why) {
  const MutexLock lock(watch_mutex_);
  if (!status_.ok()) return status_;
  status_ = AsReason(why);
  changed_.NotifyAll();
  Signal(ended_.get());
  Wake();
  return status_;
}

void GroupWatch::ShowProgress(uint64_t progress) {
  progress_ = progress;
  Wake();
}

uint64_t GroupWatch::ProgressOf(int rank) const {
  return rank == rank_ ? progress_.load() : peers_[static_cast<size_t>(rank)].progress.load();
}

int GroupWatch::FindGone(uint64_t wanted) const {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    // In this order: what a rank showed before it went is known once it is closed.
    if (peer.closed && peer.progress < wanted) return rank;
  }
  return -1;
}

absl::Status GroupWatch::AwaitReason(int rank, Instant deadline) {
  const auto until =
      std::chrono::steady_clock::now() +
      absl::ToChronoNanoseconds(std::max(absl::ZeroDuration(), deadline - RealClock().Now()));
  const MutexLock lock(watch_mutex_);
  while (status_.ok() && !peers_[static_cast<size_t>(rank)].closed) {
    if (!changed_.WaitUntil(watch_mutex_, until)) break;
  }
  return status_;
}

void GroupWatch::Loop() {
  Instant deadline = Instant::InfiniteFuture();
  while (true) {
    Prepare();
    for (Peer& peer : peers_) Receive(peer);
    for (Peer& peer : peers_) Send(peer);
    const bool leaving = leaving_;
    if (leaving) deadline = std::min(deadline, RealClock().Now() + kFarewell);
    // Told after leaving was seen: a reason of before then is sent.
    Prepare();
    if (leaving && (!unsent() || RealClock().Now() >= deadline)) return;
    Wait(leaving);
  }
}

void GroupWatch::Prepare() {
  std::string news;
  const uint64_t progress = progress_;
  if (progress != std::exchange(told_progress_, progress)) {
    news += Message(Kind::kProgress, progress);
  }
  const absl::Status why = status();
  if (!why.ok() && !std::exchange(told_end_, true)) {
    news += Message(Kind::kEnd, static_cast<uint64_t>(why.code()), std::string(why.message()));
  }
  for (Peer& peer : peers_) {
    if (peer.connection != nullptr) peer.out += news;
  }
}

bool GroupWatch::unsent() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return peer.connection != nullptr && !peer.out.empty();
  });
}

void GroupWatch::Wait(bool leaving) {
  std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}};
  for (const Peer& peer : peers_) {
    if (peer.connection == nullptr) continue;
    const short out = peer.out.empty() ? short{0} : short{POLLOUT};
    entries.push_back({peer.connection->fd(), static_cast<short>(POLLIN | out), 0});
  }
  constexpr int kLook = 50;  // milliseconds, while a deadline runs
  poll(entries.data(), entries.size(), leaving ? kLook : -1);
  uint64_t calls = 0;
  (void)!read(wake_.get(), &calls, sizeof(calls));
}

void GroupWatch::Send(Peer& peer) {
  while (peer.connection != nullptr && !peer.out.empty()) {
    const auto sent =
        peer.connection->SendSome(peer.out.data(), static_cast<int64_t>(peer.out.size()));
    // A peer that is gone is noticed by Receive, which takes what it said before.
    if (!sent.ok()) peer.out.clear();
    if (!sent.ok() || *sent == 0) return;
    peer.out.erase(0, static_cast<size_t>(*sent));
  }
}

void GroupWatch::Receive(Peer& peer) {
  while (peer.connection != nullptr) {
    char some[4096];
    const auto came = peer.connection->ReceiveSome(some, sizeof(some));
    if (came.ok()) peer.in.append(some, static_cast<size_t>(*came));
    if (!TakeMessages(peer) || !came.ok()) return Close(peer);
    if (*came == 0) return;
  }
}

bool GroupWatch::TakeMessages(Peer& peer) {
  while (peer.in.size() >= sizeof(Head)) {
    Head head;
    std::memcpy(&head, peer.in.data(), sizeof(head));
    const bool known = head.kind == Kind::kProgress || head.kind == Kind::kEnd;
    if (!known || head.text_bytes > kMostTextBytes) return false;
    if (peer.in.size() < sizeof(head) + head.text_bytes) return true;
    if (head.kind == Kind::kProgress) peer.progress = head.value;
    if (head.kind == Kind::kEnd && head.value != 0) {
      (void)Fail(absl::Status(static_cast<absl::StatusCode>(head.value),
                              peer.in.substr(sizeof(head), head.text_bytes)));
    }
    peer.in.erase(0, sizeof(head) + head.text_bytes);
  }
  return true;
}

void GroupWatch::Close(Peer& peer) {
  peer.connection.reset();
  const MutexLock lock(watch_mutex_);
  peer.closed = true;
  changed_.NotifyAll();
}

}  // namespace tandem
