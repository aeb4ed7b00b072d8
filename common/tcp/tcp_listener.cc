#include "common/tcp/tcp_listener.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/tcp/introduction.h"
#include "common/tcp/socket_wait.h"
#include "common/tcp/tcp_address.h"
#include "common/tcp/tls_session.h"

namespace tandem {
namespace {

constexpr absl::Duration kProbe = absl::Seconds(3);  // between looks at a silent peer's machine
constexpr int kWaiting = 1024;  // connections that wait for Accept; the system may allow fewer

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

}  // namespace

TcpListener::TcpListener(UniqueFd socket,
                         TcpSecurity security,
                         absl::Duration peer_silence,
                         int port)
    : socket_(std::move(socket)),
      security_(std::move(security)),
      peer_silence_(peer_silence),
      port_(port) {}

absl::StatusOr<std::unique_ptr<TcpListener>> TcpListener::Listen(const std::string& address,
                                                                 TcpSecurity security,
                                                                 absl::Duration peer_silence) {
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
  return std::unique_ptr<TcpListener>(
      new TcpListener(std::move(fd), std::move(security), peer_silence, port));
}

absl::StatusOr<std::unique_ptr<TcpConnection>> TcpListener::Accept(Instant deadline) {
  const OutsideWait wait;
  while (true) {
    if (!WaitForSocket(socket_.get(), POLLIN, deadline)) {
      return MakeStatus(absl::StatusCode::kDeadlineExceeded, "no connection arrived in time");
    }
    UniqueFd fd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) {
      TANDEM_RETURN_IF_ERROR(Prepare(fd.get(), peer_silence_));
      return IntroduceAccepted(std::move(fd), security_, RealClock().Now() + kIntroduction);
    }
    // One that another thread took, or that was given up before it was taken, is no error.
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED) {
      return MakeStatus(IoErrorCode(errno), "accept: {}", strerror(errno));
    }
  }
}

absl::StatusOr<std::unique_ptr<TcpConnection>> DialTcp(const std::string& address,
                                                       const TcpSecurity& security,
                                                       Instant deadline,
                                                       absl::Duration peer_silence) {
  const OutsideWait wait;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<ResolvedAddress> found, ResolveTcpAddress(address));
  absl::Status why;
  for (const ResolvedAddress& one : found) {
    TANDEM_ASSIGN_OR_RETURN(UniqueFd fd, MakeSocket(one));
    TANDEM_RETURN_IF_ERROR(Prepare(fd.get(), peer_silence));
    why = Connect(fd.get(), one, address, deadline);
    if (why.ok()) return IntroduceDialled(std::move(fd), security, address, deadline);
  }
  return why;
}

}  // namespace tandem
