#include "common/tcp/tcp_connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "common/base/status.h"
#include "common/tcp/socket_wait.h"
#include "common/tcp/tls_session.h"

namespace tandem {

TcpConnection::TcpConnection(UniqueFd socket,
                             std::unique_ptr<TlsSession> tls,
                             std::string peer,
                             std::vector<CallerIdentity> identities)
    : socket_(std::move(socket)),
      tls_(std::move(tls)),
      peer_(std::move(peer)),
      identities_(std::move(identities)) {}
TcpConnection::~TcpConnection() = default;

absl::Status TcpConnection::Gone(const std::string& why) const {
  return MakeStatus(absl::StatusCode::kUnavailable, "{}: {}", peer_,
                    shut_.load() ? "the connection was ended here" : why);
}

absl::StatusOr<int64_t> TcpConnection::SendPlain(const void* data, int64_t bytes) {
  while (true) {
    const ssize_t sent =
        send(socket_.get(), data, static_cast<size_t>(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return sent;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) {
      return Gone(fmt::format("the peer has closed the connection: {}", strerror(errno)));
    }
  }
}

absl::StatusOr<int64_t> TcpConnection::ReceivePlain(void* data, int64_t bytes) {
  int64_t total = 0;
  while (total < bytes) {
    const ssize_t came = recv(socket_.get(), static_cast<char*>(data) + total,
                              static_cast<size_t>(bytes - total), MSG_DONTWAIT);
    if (came > 0) {
      total += came;
      continue;
    }
    if (came < 0 && errno == EINTR) continue;
    if (total > 0 || (came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))) break;
    if (came == 0) return Gone("the peer has closed the connection");
    return Gone(fmt::format("the peer has closed the connection: {}", strerror(errno)));
  }
  return total;
}

absl::StatusOr<int64_t> TcpConnection::SendSome(const void* data, int64_t bytes) {
  if (bytes <= 0) return 0;
  auto sent = tls_ != nullptr ? tls_->Write(data, bytes) : SendPlain(data, bytes);
  if (!sent.ok()) return tls_ != nullptr ? Gone(std::string(sent.status().message())) : sent;
  send_waits_ = *sent == bytes ? 0 : POLLOUT;
  if (tls_ != nullptr && tls_->waits_for() != 0) send_waits_ = tls_->waits_for();
  return sent;
}

absl::StatusOr<int64_t> TcpConnection::ReceiveSome(void* data, int64_t bytes) {
  if (bytes <= 0) return 0;
  auto came = tls_ != nullptr ? tls_->Read(data, bytes) : ReceivePlain(data, bytes);
  if (!came.ok() && tls_ != nullptr && absl::IsPermissionDenied(came.status())) {
    return Annotate(came.status(), peer_);
  }
  if (!came.ok()) return tls_ != nullptr ? Gone(std::string(came.status().message())) : came;
  receive_waits_ = *came == bytes ? 0 : POLLIN;
  if (tls_ != nullptr && tls_->waits_for() != 0) receive_waits_ = tls_->waits_for();
  return came;
}

template <typename Step>
absl::Status TcpConnection::Complete(int64_t bytes,
                                     Instant deadline,
                                     const char* what,
                                     const Step& step) {
  for (int64_t done = 0; done < bytes;) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t moved, step(done));
    done += moved;
    if (moved > 0) continue;
    const short events = *what == 's' ? send_waits_ : receive_waits_;
    if (!WaitForSocket(socket_.get(), events, deadline)) {
      return MakeStatus(absl::StatusCode::kDeadlineExceeded, "{}: {} of {} bytes were {} in time",
                        peer_, done, bytes, what);
    }
  }
  return absl::OkStatus();
}

absl::Status TcpConnection::Send(const void* data, int64_t bytes, Instant deadline) {
  return Complete(bytes, deadline, "sent", [&](int64_t done) {
    return SendSome(static_cast<const char*>(data) + done, bytes - done);
  });
}

absl::Status TcpConnection::Receive(void* data, int64_t bytes, Instant deadline) {
  return Complete(bytes, deadline, "received", [&](int64_t done) {
    return ReceiveSome(static_cast<char*>(data) + done, bytes - done);
  });
}

void TcpConnection::Shutdown() {
  shut_ = true;
  shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace tandem
