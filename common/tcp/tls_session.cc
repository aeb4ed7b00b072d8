#include "common/tcp/tls_session.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include "common/base/status.h"
#include "common/tcp/certificate.h"

namespace tandem {
namespace {

// A record has 16 KiB: so many are received with one call of the system.
constexpr size_t kReadAheadBytes = 256 << 10;

using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

int DescriptorOf(BIO* bio) {
  return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
}

int AfterCall(BIO* bio, ssize_t result, bool writes) {
  BIO_clear_retry_flags(bio);
  if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    writes ? BIO_set_retry_write(bio) : BIO_set_retry_read(bio);
  }
  return static_cast<int>(result);
}

// OpenSSL's own sockets are written without MSG_NOSIGNAL: a peer that has gone would end this
// process by SIGPIPE.
BIO_METHOD* QuietSocket() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "quiet socket");
    BIO_meth_set_write(made, [](BIO* bio, const char* data, int bytes) {
      return AfterCall(bio, send(DescriptorOf(bio), data, static_cast<size_t>(bytes), MSG_NOSIGNAL),
                       true);
    });
    BIO_meth_set_read(made, [](BIO* bio, char* data, int bytes) {
      return AfterCall(bio, recv(DescriptorOf(bio), data, static_cast<size_t>(bytes), 0), false);
    });
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
absl::StatusOr<Context> MakeContext(const TcpSecurity& security) {
  ERR_clear_error();
  Context context(SSL_CTX_new(TLS_method()), &SSL_CTX_free);
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
  OpenSslSession(SSL* ssl, int64_t records_of_key)
      : ssl_(ssl, &SSL_free), records_of_key_(records_of_key) {}

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
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(
        SSL_get1_peer_certificate(ssl_.get()), &X509_free);
    const std::unique_ptr<BIO, decltype(&BIO_free)> text(BIO_new(BIO_s_mem()), &BIO_free);
    if (certificate == nullptr || PEM_write_bio_X509(text.get(), certificate.get()) != 1) {
      return Internal("the peer's certificate is lost");
    }
    char* pem = nullptr;
    const long bytes = BIO_get_mem_data(text.get(), &pem);
    return CertificateUris(std::string(pem, static_cast<size_t>(bytes)));
  }

 private:
  // After a call that has sent a record, of which none is pending: the next call begins with the
  // message that changes the key.
  void CountRecord() {
    if (++records_ < records_of_key_) return;
    records_ = 0;
    if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) ++key_changes_;
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

  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
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
  TANDEM_ASSIGN_OR_RETURN(const Context context, MakeContext(security));
  SSL* const ssl = SSL_new(context.get());
  BIO* const socket = BIO_new(QuietSocket());
  if (ssl == nullptr || socket == nullptr) return Internal("no TLS session: {}", ErrorText());
  auto session = std::make_unique<OpenSslSession>(ssl, records_of_key);
  BIO_set_data(socket, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(socket, 1);
  SSL_set_bio(ssl, socket, socket);
  if (side == TlsSide::kAccepts) {
    SSL_set_accept_state(ssl);
  } else {
    SSL_set_connect_state(ssl);
    if (!ExpectHost(ssl, host)) return InvalidArgument("{} is not a host's name", host);
  }
  return session;
}

}  // namespace tandem
