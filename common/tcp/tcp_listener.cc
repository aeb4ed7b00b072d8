#include "common/tcp/tcp_listener.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/tcp/introduction.h"
#include "common/tcp/socket_wait.h"
#include "common/tcp/tcp_address.h"
#include "common/tcp/tls_session.h"

namespace tandem {
namespace {

constexpr absl::Duration kProbe = absl::Seconds(3);  // between looks at a silent peer's machine
constexpr int kWaiting = 1024;  // connections that are not taken yet; the system may allow fewer
// Peers that are being introduced. Of more the one that has taken longest is dropped, so that
// silent ones cannot keep others away.
constexpr size_t kMostPeers = 256;
constexpr size_t kMostArrived = 256;  // connections and refusals that wait for Accept
constexpr size_t kMostRefusals = 16;  // among them
constexpr absl::Duration kLongestAccept = absl::Hours(10'000);  // the system's clock has an end
// After an error of the system, which would be there again at once.
constexpr absl::Duration kQuiet = absl::Milliseconds(250);

bool Set(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

// Small messages go at once, and a peer whose machine is silent for so long is given up.
absl::Status Prepare(int fd, absl::Duration peer_silence) {
  const auto probe = static_cast<int>(absl::ToInt64Seconds(kProbe));
  const auto probes = static_cast<int>(std::max<int64_t>(1, peer_silence / kProbe));
  const auto silence = static_cast<int>(absl::ToInt64Milliseconds(peer_silence));
  if (Set(fd, IPPROTO_TCP, TCP_NODELAY, 1) && Set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, silence) &&
      Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1) && Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, probe) &&
      Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, probe) && Set(fd, IPPROTO_TCP, TCP_KEEPCNT, probes)) {
    return absl::OkStatus();
  }
  return Internal("a socket does not take its options: {}", strerror(errno));
}

absl::StatusOr<UniqueFd> MakeSocket(const ResolvedAddress& address) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.valid()) return fd;
  return MakeStatus(IoErrorCode(errno), "socket: {}", strerror(errno));
}

int PortOf(int fd) {
  ResolvedAddress bound;
  bound.bytes = sizeof(bound.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound.storage), &bound.bytes) != 0) return 0;
  return bound.storage.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&bound.storage)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port);
}

// Connects without blocking beyond `deadline`.
absl::Status Connect(int fd, const ResolvedAddress& to, const std::string& text, Instant deadline) {
  if (connect(fd, to.get(), to.bytes) == 0) return absl::OkStatus();
  int error = errno;
  if (error == EINPROGRESS || error == EINTR) {
    if (!WaitForSocket(fd, POLLOUT, deadline)) {
      return MakeStatus(absl::StatusCode::kDeadlineExceeded, "no connection to {} in time", text);
    }
    socklen_t bytes = sizeof(error);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
  }
  if (error == 0) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kUnavailable, "cannot connect to {}: {}", text,
                    strerror(error));
}

void Raise(const UniqueFd& event) {
  const uint64_t one = 1;
  (void)!write(event.get(), &one, sizeof(one));
}
void Clear(const UniqueFd& event) {
  uint64_t raised = 0;
  (void)!read(event.get(), &raised, sizeof(raised));
}

}  // namespace

TcpListener::TcpListener(
    UniqueFd socket, TcpSecurity security, absl::Duration peer_silence, Clock& clock, int port)
    : socket_(std::move(socket)),
      security_(std::move(security)),
      peer_silence_(peer_silence),
      clock_(clock),
      port_(port) {}

absl::StatusOr<std::unique_ptr<TcpListener>> TcpListener::Listen(const std::string& address,
                                                                 TcpSecurity security,
                                                                 absl::Duration peer_silence,
                                                                 Clock& clock) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<ResolvedAddress> found, ResolveTcpAddress(address));
  TANDEM_ASSIGN_OR_RETURN(UniqueFd fd, MakeSocket(found[0]));
  if (security.enabled()) {
    // Files that are not usable are found here, and not by the first peer.
    TANDEM_RETURN_IF_ERROR(TlsSession::Create(security, TlsSide::kAccepts, fd.get(), "").status());
  }
  if (!Set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1) ||
      bind(fd.get(), found[0].get(), found[0].bytes) != 0 || listen(fd.get(), kWaiting) != 0) {
    return FailedPrecondition("cannot listen on {}: {}", address, strerror(errno));
  }
  const int port = PortOf(fd.get());
  std::unique_ptr<TcpListener> listener(
      new TcpListener(std::move(fd), std::move(security), peer_silence, clock, port));
  TANDEM_RETURN_IF_ERROR(listener->Start());
  return listener;
}

absl::Status TcpListener::Start() {
  arrived_event_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  wake_event_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!arrived_event_.valid() || !wake_event_.valid()) {
    return MakeStatus(IoErrorCode(errno), "eventfd: {}", strerror(errno));
  }
  thread_ = NamedThread("tcp listener", [this] { Loop(); });
  return absl::OkStatus();
}

TcpListener::~TcpListener() {
  {
    const MutexLock lock(arrived_mutex_);
    stopping_ = true;
  }
  Raise(wake_event_);
}

absl::StatusOr<std::unique_ptr<TcpConnection>> TcpListener::Accept(Instant deadline) {
  const OutsideWait wait;
  const absl::Duration left = std::min(deadline - RealClock().Now(), kLongestAccept);
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(left);
  const MutexLock lock(arrived_mutex_);
  while (arrived_.empty() && trouble_.ok()) {
    if (arrived_changed_.WaitUntil(arrived_mutex_, until) || !arrived_.empty()) continue;
    if (!trouble_.ok()) continue;
    return MakeStatus(absl::StatusCode::kDeadlineExceeded, "no connection arrived in time");
  }
  if (arrived_.empty()) {
    AcceptedIntroduction::Result trouble = std::exchange(trouble_, absl::OkStatus());
    ShowWhetherArrived();
    return trouble;
  }
  AcceptedIntroduction::Result next = std::move(arrived_.front());
  arrived_.pop_front();
  ShowWhetherArrived();
  if (arrived_.size() + 1 == kMostArrived) Raise(wake_event_);
  return next;
}

void TcpListener::ShowWhetherArrived() {
  arrived_.empty() && trouble_.ok() ? Clear(arrived_event_) : Raise(arrived_event_);
}

void TcpListener::Deliver(AcceptedIntroduction::Result result) {
  const MutexLock lock(arrived_mutex_);
  if (!result.ok()) ForgetOldestRefusal();
  arrived_.push_back(std::move(result));
  ShowWhetherArrived();
  arrived_changed_.NotifyAll();
}

// Nobody may call Accept for hours, and connections must find room then.
void TcpListener::ForgetOldestRefusal() {
  const auto refused = [](const AcceptedIntroduction::Result& one) { return !one.ok(); };
  if (std::count_if(arrived_.begin(), arrived_.end(), refused) <
      static_cast<ptrdiff_t>(kMostRefusals))
    return;
  arrived_.erase(std::find_if(arrived_.begin(), arrived_.end(), refused));
}

void TcpListener::NoteTrouble(const absl::Status& trouble) {
  const MutexLock lock(arrived_mutex_);
  if (trouble_.ok() && trouble.ok()) return;
  trouble_ = trouble;
  ShowWhetherArrived();
  arrived_changed_.NotifyAll();
}

bool TcpListener::HasRoom() {
  const MutexLock lock(arrived_mutex_);
  if (arrived_.size() < kMostArrived) return true;
  std::erase_if(arrived_, [](const auto& one) { return one.ok() && (*one)->closed(); });
  ShowWhetherArrived();
  return arrived_.size() < kMostArrived;
}

std::vector<pollfd> TcpListener::Wait(const std::list<AcceptedIntroduction>& peers,
                                      Instant quiet_until) {
  const Instant now = clock_.Now();
  const absl::Duration quiet = quiet_until - RealClock().Now();
  const bool takes = quiet <= absl::ZeroDuration() && HasRoom();
  std::vector<pollfd> entries = {{wake_event_.get(), POLLIN, 0},
                                 {takes ? socket_.get() : -1, POLLIN, 0}};
  // Those that wait for Accept may leave without a word.
  absl::Duration left = takes ? absl::InfiniteDuration() : kQuiet;
  for (const AcceptedIntroduction& peer : peers) {
    entries.push_back({peer.fd(), peer.events(), 0});
    left = std::min(left, peer.deadline() - now);
  }
  const bool for_ever = left == absl::InfiniteDuration();
  const auto milliseconds = static_cast<int>(
      for_ever ? -1
               : absl::ToInt64Milliseconds(
                     absl::Ceil(std::max(left, absl::ZeroDuration()), absl::Milliseconds(1))));
  poll(entries.data(), entries.size(), milliseconds);
  return entries;
}

absl::Status TcpListener::Take(std::list<AcceptedIntroduction>* peers) {
  UniqueFd fd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    // One that was given up before it was taken is no error.
    const bool passes =
        errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ECONNABORTED;
    return passes ? absl::OkStatus()
                  : MakeStatus(IoErrorCode(errno), "accept: {}", strerror(errno));
  }
  TANDEM_RETURN_IF_ERROR(Prepare(fd.get(), peer_silence_));
  if (peers->size() == kMostPeers) {
    Deliver(peers->front().Late());
    peers->pop_front();
  }
  peers->emplace_back(std::move(fd), security_, clock_.Now() + kIntroduction);
  return absl::OkStatus();
}

void TcpListener::Loop() {
  std::list<AcceptedIntroduction> peers;  // the oldest first
  Instant quiet_until;
  while (true) {
    const std::vector<pollfd> entries = Wait(peers, quiet_until);
    Clear(wake_event_);
    {
      const MutexLock lock(arrived_mutex_);
      if (stopping_) return;
    }
    auto entry = entries.begin() + 2;
    for (auto peer = peers.begin(); peer != peers.end(); ++entry) {
      const bool late = clock_.Now() >= peer->deadline();
      auto result = entry->revents != 0 || late ? peer->Step() : std::nullopt;
      if (!result && late) result = peer->Late();
      peer = result ? peers.erase(peer) : std::next(peer);
      if (result) Deliver(*std::move(result));
    }
    if (entries[1].revents == 0) continue;
    const absl::Status taken = Take(&peers);
    NoteTrouble(taken);
    if (!taken.ok()) quiet_until = RealClock().Now() + kQuiet;
  }
}

absl::StatusOr<UniqueFd> ConnectToAny(const std::vector<ResolvedAddress>& addresses,
                                      const std::string& text,
                                      Instant deadline,
                                      absl::Duration peer_silence) {
  absl::Status why;
  for (size_t i = 0; i < addresses.size(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(UniqueFd fd, MakeSocket(addresses[i]));
    TANDEM_RETURN_IF_ERROR(Prepare(fd.get(), peer_silence));
    const Instant now = RealClock().Now();
    const auto left = static_cast<int64_t>(addresses.size() - i);
    why = Connect(fd.get(), addresses[i], text, now + (deadline - now) / left);
    if (why.ok()) return fd;
  }
  return why;
}

absl::StatusOr<std::unique_ptr<TcpConnection>> DialTcp(const std::string& address,
                                                       const TcpSecurity& security,
                                                       Instant deadline,
                                                       absl::Duration peer_silence) {
  const OutsideWait wait;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<ResolvedAddress> found, ResolveTcpAddress(address));
  TANDEM_ASSIGN_OR_RETURN(UniqueFd fd, ConnectToAny(found, address, deadline, peer_silence));
  return IntroduceDialled(std::move(fd), security, address, deadline);
}

}  // namespace tandem
