#include "common/tcp/introduction.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include "common/base/status.h"
#include "common/tcp/socket_wait.h"
#include "common/tcp/tcp_address.h"

namespace tandem {
namespace {

// What the end that dials says first.
constexpr char kMagic[] = "TANDEM-1";
constexpr int64_t kMagicBytes = sizeof(kMagic) - 1;
constexpr unsigned char kTlsHandshake = 0x16;  // the first byte of a TLS connection
constexpr size_t kMostReasonBytes = 1000;

constexpr char kSpeaksTls[] =
    "the peer speaks TLS and this process has no certificate (cluster.tls)";
constexpr char kWantsTls[] = "the port wants TLS and the peer has no certificate (cluster.tls)";

// The answer: the number of bytes of a reason to refuse, and the reason. 0: welcome.
struct Answer {
  uint32_t reason_bytes = 0;
};

absl::Status SayAnswer(TcpConnection& connection, const std::string& reason, Instant deadline) {
  const std::string said = reason.substr(0, kMostReasonBytes);
  const Answer answer{static_cast<uint32_t>(said.size())};
  TANDEM_RETURN_IF_ERROR(connection.Send(&answer, sizeof(answer), deadline));
  return connection.Send(said.data(), static_cast<int64_t>(said.size()), deadline);
}

// Tells a peer why, which is lost if it does not read; bytes of its own that nobody reads would
// reset the connection before it does.
absl::Status Refuse(TcpConnection& connection, const std::string& reason, Instant deadline) {
  (void)SayAnswer(connection, reason, deadline);
  char unread[4096];
  while (recv(connection.fd(), unread, sizeof(unread), MSG_DONTWAIT) > 0) {
  }
  return absl::PermissionDeniedError(fmt::format("{}: {}", connection.peer(), reason));
}

absl::Status AwaitAnswer(TcpConnection& connection, Instant deadline) {
  Answer answer;
  TANDEM_RETURN_IF_ERROR(connection.Receive(&answer, sizeof(answer), deadline));
  if (answer.reason_bytes == 0) return absl::OkStatus();
  if (answer.reason_bytes > kMostReasonBytes) {
    return MakeStatus(absl::StatusCode::kUnavailable, "{}: this is not a port of Tandem",
                      connection.peer());
  }
  std::string reason(answer.reason_bytes, ' ');
  TANDEM_RETURN_IF_ERROR(connection.Receive(reason.data(), answer.reason_bytes, deadline));
  return absl::PermissionDeniedError(
      fmt::format("{} refuses the connection: {}", connection.peer(), reason));
}

absl::Status ShakeHands(TlsSession& tls, int fd, const std::string& peer, Instant deadline) {
  while (true) {
    const auto done = tls.Handshake();
    if (!done.ok()) return Annotate(done.status(), peer);
    if (*done) return absl::OkStatus();
    if (!WaitForSocket(fd, tls.waits_for(), deadline)) {
      return MakeStatus(absl::StatusCode::kDeadlineExceeded, "{}: no TLS handshake in time", peer);
    }
  }
}

// Whether the peer's certificate is of the project and of a role that is wanted.
absl::StatusOr<std::vector<CallerIdentity>> CheckPeer(const TlsSession& tls,
                                                      const TcpSecurity& security) {
  const auto uris = tls.PeerUris();
  if (!uris.ok()) return absl::PermissionDeniedError(uris.status().message());
  auto identities = ParseIdentities(*uris);
  if (!identities.ok()) return absl::PermissionDeniedError(identities.status().message());
  for (const CallerIdentity& identity : *identities) {
    const auto& roles = security.peer_roles;
    if (identity.project == security.project &&
        std::find(roles.begin(), roles.end(), identity.role) != roles.end()) {
      return identities;
    }
  }
  return absl::PermissionDeniedError(fmt::format(
      "a data connection is for the role {} of project {}; the peer's certificate {}",
      fmt::join(security.peer_roles, " or "), security.project, IdentitiesText(*identities)));
}

// The first bytes of a connection go into its empty socket at once.
Instant AtOnce() { return RealClock().Now(); }

}  // namespace

const std::array<AcceptedIntroduction::Part, AcceptedIntroduction::kParts>
    AcceptedIntroduction::kInOrder = {&AcceptedIntroduction::LookAtFirstByte,
                                      &AcceptedIntroduction::Handshake,
                                      &AcceptedIntroduction::ReadMagic};

AcceptedIntroduction::AcceptedIntroduction(UniqueFd socket,
                                           const TcpSecurity& security,
                                           Instant deadline)
    : socket_(std::move(socket)),
      fd_(socket_.get()),
      peer_(PeerAddress(fd_)),
      security_(security),
      deadline_(deadline) {}

std::optional<AcceptedIntroduction::Result> AcceptedIntroduction::Step() {
  while (true) {
    const absl::StatusOr<bool> done = (this->*kInOrder[part_])();
    if (!done.ok()) return Result(done.status());
    if (!*done) return std::nullopt;
    if (++part_ == kParts) return Result(std::move(connection_));
  }
}

absl::Status AcceptedIntroduction::Late() const {
  return MakeStatus(absl::StatusCode::kUnavailable, "{} connected and {}", peer_,
                    part_ == 0 ? "said nothing" : "did not say in time who it is");
}

// It stays unread.
absl::StatusOr<bool> AcceptedIntroduction::LookAtFirstByte() {
  unsigned char first = 0;
  const ssize_t came = recv(fd_, &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  if (came <= 0) return Late();
  const bool peer_has_tls = first == kTlsHandshake;
  if (peer_has_tls != security_.enabled()) {
    TcpConnection plain(std::move(socket_), nullptr, peer_, {});
    return Refuse(plain, peer_has_tls ? kSpeaksTls : kWantsTls, AtOnce());
  }
  if (!security_.enabled()) return true;
  TANDEM_ASSIGN_OR_RETURN(tls_, TlsSession::Create(security_, TlsSide::kAccepts, fd_, ""));
  return true;
}

absl::StatusOr<bool> AcceptedIntroduction::Handshake() {
  if (tls_ != nullptr) {
    const auto done = tls_->Handshake();
    if (!done.ok()) return Annotate(done.status(), peer_);
    events_ = tls_->waits_for();
    if (!*done) return false;
    identities_ = CheckPeer(*tls_, security_);
  }
  connection_ = std::make_unique<TcpConnection>(
      std::move(socket_), std::move(tls_), peer_,
      identities_.ok() ? *identities_ : std::vector<CallerIdentity>());
  return true;
}

absl::StatusOr<bool> AcceptedIntroduction::ReadMagic() {
  char said[kMagicBytes];
  const auto left = kMagicBytes - std::ssize(said_);
  TANDEM_ASSIGN_OR_RETURN(const int64_t came, connection_->ReceiveSome(said, left));
  said_.append(said, static_cast<size_t>(came));
  events_ = connection_->receive_waits();
  if (came < left) return false;
  if (said_ != kMagic) {
    return MakeStatus(absl::StatusCode::kUnavailable, "{} does not speak this protocol", peer_);
  }
  if (!identities_.ok()) {
    return Refuse(*connection_, std::string(identities_.status().message()), AtOnce());
  }
  const absl::Status answered = SayAnswer(*connection_, "", AtOnce());
  if (absl::IsDeadlineExceeded(answered)) return absl::UnavailableError(answered.message());
  TANDEM_RETURN_IF_ERROR(answered);
  return true;
}

absl::StatusOr<std::unique_ptr<TcpConnection>> IntroduceDialled(UniqueFd socket,
                                                                const TcpSecurity& security,
                                                                const std::string& address,
                                                                Instant deadline) {
  const int fd = socket.get();
  std::unique_ptr<TlsSession> tls;
  std::vector<CallerIdentity> identities;
  if (security.enabled()) {
    TANDEM_ASSIGN_OR_RETURN(const TcpAddress parsed, ParseTcpAddress(address));
    TANDEM_ASSIGN_OR_RETURN(tls, TlsSession::Create(security, TlsSide::kDials, fd, parsed.host));
    TANDEM_RETURN_IF_ERROR(ShakeHands(*tls, fd, address, deadline));
    auto checked = CheckPeer(*tls, security);
    if (!checked.ok()) return Annotate(checked.status(), address);
    identities = std::move(checked).value();
  }
  auto connection = std::make_unique<TcpConnection>(std::move(socket), std::move(tls), address,
                                                    std::move(identities));
  // A peer that has refused may have closed the connection already, and left its reason.
  const absl::Status sent = connection->Send(kMagic, kMagicBytes, deadline);
  TANDEM_RETURN_IF_ERROR(AwaitAnswer(*connection, deadline));
  TANDEM_RETURN_IF_ERROR(sent);
  return connection;
}

}  // namespace tandem
