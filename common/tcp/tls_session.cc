#include "common/tcp/tls_session.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>

#include "common/base/status.h"
#include "common/tcp/certificate.h"
#include "common/tcp/openssl_objects.h"

namespace tandem {
namespace {

// A record has 16 KiB: so many are received with one call of the system.
constexpr size_t kReadAheadBytes = 256 << 10;

// What a session writes to and reads from.
struct SocketEnd {
  int fd = -1;
  // While this is true whatever is written is taken; what the socket has no room for is sent before
  // all that is written later.
  bool holds = false;
  std::string held;
};

SocketEnd& EndOf(BIO* bio) { return *static_cast<SocketEnd*>(BIO_get_data(bio)); }

bool MustWait(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

int AfterCall(BIO* bio, ssize_t result, bool writes) {
  BIO_clear_retry_flags(bio);
  if (result < 0 && MustWait(errno)) {
    writes ? BIO_set_retry_write(bio) : BIO_set_retry_read(bio);
  }
  return static_cast<int>(result);
}

// Without MSG_NOSIGNAL a peer that has gone would end this process.
ssize_t SendTo(const SocketEnd& end, const char* data, size_t bytes) {
  return send(end.fd, data, bytes, MSG_NOSIGNAL);
}

int WriteSocket(BIO* bio, const char* data, int bytes) {
  SocketEnd& end = EndOf(bio);
  ssize_t sent = 0;
  while (sent >= 0 && !end.held.empty()) {
    sent = SendTo(end, end.held.data(), end.held.size());
    if (sent > 0) end.held.erase(0, static_cast<size_t>(sent));
  }
  if (sent >= 0) sent = SendTo(end, data, static_cast<size_t>(bytes));
  if (sent < 0 && MustWait(errno) && end.holds) {
    end.held.append(data, static_cast<size_t>(bytes));
    sent = bytes;
  }
  return AfterCall(bio, sent, /*writes=*/true);
}

int ReadSocket(BIO* bio, char* data, int bytes) {
  return AfterCall(bio, recv(EndOf(bio).fd, data, static_cast<size_t>(bytes), 0),
                   /*writes=*/false);
}

// OpenSSL's own sockets are written without MSG_NOSIGNAL: a peer that has gone would end this
// process by SIGPIPE.
BIO_METHOD* QuietSocket() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "quiet socket");
    BIO_meth_set_write(made, &WriteSocket);
    BIO_meth_set_read(made, &ReadSocket);
    BIO_meth_set_ctrl(made, [](BIO* /*bio*/, int command, long /*number*/, void* /*data*/) -> long {
      return command == BIO_CTRL_FLUSH ? 1 : 0;
    });
    return made;
  }();
  return method;
}

// What OpenSSL says of the last error of this thread, which is then forgotten.
std::string ErrorText() {
  const unsigned long error = ERR_peek_last_error();
  const char* const reason = ERR_reason_error_string(error);
  ERR_clear_error();
  return reason != nullptr ? reason : "an unknown error";
}

absl::Status FileError(const char* what, const std::string& path) {
  return InvalidArgument("TLS cannot use the {} {}: {}", what, path, ErrorText());
}

// The files are read for each connection: they may have been replaced.
absl::StatusOr<OwnedContext> MakeContext(const TcpSecurity& security) {
  ERR_clear_error();
  OwnedContext context(SSL_CTX_new(TLS_method()));
  if (context == nullptr) return Internal("no TLS context: {}", ErrorText());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Connections are not resumed, and a ticket that is never read would reset them at their end.
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), kReadAheadBytes);
  if (SSL_CTX_use_certificate_chain_file(context.get(), security.cert.c_str()) != 1) {
    return FileError("certificate", security.cert);
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), security.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context.get()) != 1) {
    return FileError("key", security.key);
  }
  if (SSL_CTX_load_verify_locations(context.get(), security.ca.c_str(), nullptr) != 1) {
    return FileError("authority", security.ca);
  }
  return context;
}

bool IsIpAddress(const std::string& host) {
  in6_addr parsed;
  return inet_pton(AF_INET, host.c_str(), &parsed) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

class OpenSslSession final : public TlsSession {
 public:
  // `socket` is none of `ssl` yet.
  OpenSslSession(OwnedSession ssl, OwnedBio socket, int fd, int64_t records_of_key)
      : end_{.fd = fd}, ssl_(std::move(ssl)), records_of_key_(records_of_key) {
    BIO_set_data(socket.get(), &end_);
    BIO_set_init(socket.get(), 1);
    SSL_set_bio(ssl_.get(), socket.get(), socket.get());
    (void)socket.release();  // it is the session's
  }

  absl::StatusOr<bool> Handshake() override {
    TANDEM_ASSIGN_OR_RETURN(const int64_t done,
                            Do([this] { return SSL_do_handshake(ssl_.get()); }));
    greeted_ = done > 0;
    return greeted_;
  }
  absl::StatusOr<int64_t> Write(const void* data, int64_t bytes) override {
    return Repeat(bytes, [&](int64_t at, int64_t left) {
      const int went =
          SSL_write(ssl_.get(), static_cast<const char*>(data) + at, static_cast<int>(left));
      if (went > 0) CountRecord();
      return went;
    });
  }
  absl::StatusOr<int64_t> Read(void* data, int64_t bytes) override {
    return Repeat(bytes, [&](int64_t at, int64_t left) {
      return SSL_read(ssl_.get(), static_cast<char*>(data) + at, static_cast<int>(left));
    });
  }
  short waits_for() const override { return waits_for_; }
  int64_t key_changes() const override { return key_changes_; }
  absl::StatusOr<std::vector<std::string>> PeerUris() const override {
    const OwnedCertificate certificate(SSL_get1_peer_certificate(ssl_.get()));
    const OwnedBio text = EmptyBio();
    if (certificate == nullptr || PEM_write_bio_X509(text.get(), certificate.get()) != 1) {
      return Internal("the peer's certificate is lost");
    }
    return CertificateUris(TextOf(text));
  }

 private:
  // After a call that has sent a record, of which none is pending.
  void CountRecord() {
    if (++records_ < records_of_key_) return;
    records_ = 0;
    // OpenSSL reads nothing while the message that changes the key waits for room in the socket,
    // and two ends that both wait so would stand still.
    end_.holds = true;
    const bool changed = SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1 &&
                         SSL_do_handshake(ssl_.get()) == 1;
    end_.holds = false;
    if (changed) ++key_changes_;
  }
  // OpenSSL handles a record of 16 KiB at a time.
  template <typename Call>
  absl::StatusOr<int64_t> Repeat(int64_t bytes, const Call& call) {
    int64_t total = 0;
    while (total < bytes) {
      const int64_t left = std::min<int64_t>(bytes - total, INT_MAX);
      const auto moved = Do([&] { return call(total, left); });
      if (!moved.ok() && total == 0) return moved.status();
      if (!moved.ok() || *moved == 0) break;  // an error is returned by the next call
      total += *moved;
    }
    return total;
  }
  // 0 if the call must wait.
  template <typename Call>
  absl::StatusOr<int64_t> Do(const Call& call) {
    TANDEM_RETURN_IF_ERROR(failed_);
    ERR_clear_error();
    errno = 0;
    const int result = call();
    const int system_error = errno;
    waits_for_ = 0;
    if (result > 0) return result;
    const int error = SSL_get_error(ssl_.get(), result);
    if (error == SSL_ERROR_WANT_READ) waits_for_ = POLLIN;
    if (error == SSL_ERROR_WANT_WRITE) waits_for_ = POLLOUT;
    if (waits_for_ == 0) failed_ = Failure(error, system_error);
    TANDEM_RETURN_IF_ERROR(failed_);
    return 0;
  }
  absl::Status Failure(int error, int system_error) const {
    const int reason = ERR_GET_REASON(ERR_peek_last_error());
    if (error != SSL_ERROR_SSL || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
      ERR_clear_error();
      return MakeStatus(absl::StatusCode::kUnavailable, "the peer has closed the connection{}{}",
                        system_error != 0 ? ": " : "",
                        system_error != 0 ? strerror(system_error) : "");
    }
    const long verified = SSL_get_verify_result(ssl_.get());
    if (!greeted_ && verified != X509_V_OK) {
      ERR_clear_error();
      return absl::PermissionDeniedError(fmt::format("the peer's certificate is not accepted: {}",
                                                     X509_verify_cert_error_string(verified)));
    }
    const std::string text = ErrorText();
    if (reason > SSL_AD_REASON_OFFSET) {
      return absl::PermissionDeniedError(
          fmt::format("the peer does not accept this process's certificate: {}", text));
    }
    if (greeted_) {
      return MakeStatus(absl::StatusCode::kUnavailable, "the TLS connection is broken: {}", text);
    }
    return absl::PermissionDeniedError(fmt::format(
        "no TLS connection: {}; a peer that has no certificate does not speak TLS", text));
  }

  SocketEnd end_;  // before `ssl_`, whose end may write to it
  const OwnedSession ssl_;
  const int64_t records_of_key_;
  int64_t records_ = 0;  // that were sent with the key
  int64_t key_changes_ = 0;
  bool greeted_ = false;
  short waits_for_ = 0;
  absl::Status failed_;
};

// The peer's certificate must be of `host`, a name or an address.
bool ExpectHost(SSL* ssl, const std::string& host) {
  if (IsIpAddress(host)) {
    return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1;
  }
  return SSL_set_tlsext_host_name(ssl, host.c_str()) == 1 && SSL_set1_host(ssl, host.c_str()) == 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsSession>> TlsSession::Create(const TcpSecurity& security,
                                                               TlsSide side,
                                                               int fd,
                                                               const std::string& host,
                                                               int64_t records_of_key) {
  TANDEM_ASSIGN_OR_RETURN(const OwnedContext context, MakeContext(security));
  OwnedSession ssl(SSL_new(context.get()));
  OwnedBio socket(BIO_new(QuietSocket()));
  if (ssl == nullptr || socket == nullptr) return Internal("no TLS session: {}", ErrorText());
  if (side == TlsSide::kAccepts) {
    SSL_set_accept_state(ssl.get());
  } else {
    SSL_set_connect_state(ssl.get());
    if (!ExpectHost(ssl.get(), host)) return InvalidArgument("{} is not a host's name", host);
  }
  return std::make_unique<OpenSslSession>(std::move(ssl), std::move(socket), fd, records_of_key);
}

}  // namespace tandem
