// How TCP connections come about: a port that listens, and a call to one.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/process/local_socket.h"
#include "common/tcp/tcp_connection.h"
#include "common/tcp/tcp_security.h"

namespace tandem {

// A peer that has connected says who it is within this time, or is dropped.
inline constexpr absl::Duration kIntroduction = absl::Seconds(10);

// Thread-safe.
class TcpListener {
 public:
  // `address`: "127.0.0.1:0", "0.0.0.0:0", "[::]:0"; port 0 is any free one. Without TLS whoever
  // reaches the port can connect: its users ask for a secret in their first message, or listen on
  // networks that are closed. InvalidArgument: the address, or a file of `security`.
  // FailedPrecondition: the port is taken, or the address is not this host's.
  static absl::StatusOr<std::unique_ptr<TcpListener>> Listen(
      const std::string& address, TcpSecurity security, absl::Duration peer_silence = kPeerSilence);

  int port() const { return port_; }
  // The next connection, introduced: its peer has shown its certificate. Waits until `deadline`, of
  // RealClock, for one to come, and then up to kIntroduction for its peer.
  // DeadlineExceeded: nobody came. PermissionDenied: a peer was refused, or refuses; Unavailable:
  // one left or said nothing. After these two the caller accepts the next one.
  // ResourceExhausted: no descriptor is free. InvalidArgument: a file of the security.
  absl::StatusOr<std::unique_ptr<TcpConnection>> Accept(Instant deadline);

 private:
  TcpListener(UniqueFd socket, TcpSecurity security, absl::Duration peer_silence, int port);

  const UniqueFd socket_;
  const TcpSecurity security_;
  const absl::Duration peer_silence_;
  const int port_;
};

// Tries once. Unavailable: nobody listens at `address`, the host's name is not known, or the peer
// left. PermissionDenied: one end refuses the other, or only one of them speaks TLS.
// DeadlineExceeded, by RealClock; asking the name service takes its own time.
absl::StatusOr<std::unique_ptr<TcpConnection>> DialTcp(const std::string& address,
                                                       const TcpSecurity& security,
                                                       Instant deadline,
                                                       absl::Duration peer_silence = kPeerSilence);

}  // namespace tandem
