// TLS 1.3 over a non-blocking socket.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/tcp/tcp_security.h"

namespace tandem {

enum class TlsSide { kDials, kAccepts };

// A key of AES-GCM is good for 2^24.5 records of 16 KiB (RFC 8446, 5.5), about 390 GB, and OpenSSL
// does not count them: each end changes the key that it sends with after so many.
inline constexpr int64_t kRecordsOfKey = int64_t{1} << 23;

// For one thread at a time. After an error every later call returns it again.
class TlsSession {
 public:
  // `fd` outlives the session. `host`, of the side that dials, must be in the peer's certificate.
  // InvalidArgument: a file of `security` is not what it should be.
  static absl::StatusOr<std::unique_ptr<TlsSession>> Create(const TcpSecurity& security,
                                                            TlsSide side,
                                                            int fd,
                                                            const std::string& host,
                                                            int64_t records_of_key = kRecordsOfKey);
  virtual ~TlsSession() = default;

  // True: done. False: wait for waits_for() and call again. PermissionDenied: one end refuses the
  // other, or only one of them speaks TLS.
  virtual absl::StatusOr<bool> Handshake() = 0;
  // How many bytes went: 0 if none can go now. Unavailable: the peer has closed the connection.
  virtual absl::StatusOr<int64_t> Write(const void* data, int64_t bytes) = 0;
  virtual absl::StatusOr<int64_t> Read(void* data, int64_t bytes) = 0;
  // poll's events for which the last call waits; 0 if it did not have to.
  virtual short waits_for() const = 0;
  // How often this end has changed the key that it sends with.
  virtual int64_t key_changes() const = 0;
  // The URIs of the peer's certificate, once the handshake is done.
  virtual absl::StatusOr<std::vector<std::string>> PeerUris() const = 0;
};

}  // namespace tandem
