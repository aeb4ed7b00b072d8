// The first bytes of a connection: TLS, then a word of each end, so that both know that the other
// one wants the connection.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <poll.h>

#include "common/base/clock.h"
#include "common/process/local_socket.h"
#include "common/tcp/identity.h"
#include "common/tcp/tcp_connection.h"
#include "common/tcp/tcp_security.h"
#include "common/tcp/tls_session.h"

namespace tandem {

// Of the end that accepts. Never waits, so that one thread introduces many peers: one that has
// connected and says nothing holds up no other. For one thread at a time.
class AcceptedIntroduction {
 public:
  using Result = absl::StatusOr<std::unique_ptr<TcpConnection>>;

  // `socket` is connected. `security` outlives the introduction. From `deadline`, of the
  // listener's clock, on the peer is late.
  AcceptedIntroduction(UniqueFd socket, const TcpSecurity& security, Instant deadline);
  AcceptedIntroduction(const AcceptedIntroduction&) = delete;
  AcceptedIntroduction& operator=(const AcceptedIntroduction&) = delete;

  // Goes on with what the peer has said. nullopt: it waits for poll's events() of fd(). Errors as
  // TcpListener::Accept.
  std::optional<Result> Step();
  // Unavailable: what the peer has not said in time.
  absl::Status Late() const;

  int fd() const { return fd_; }
  short events() const { return events_; }
  Instant deadline() const { return deadline_; }

 private:
  // True: done; false: it waits.
  using Part = absl::StatusOr<bool> (AcceptedIntroduction::*)();
  absl::StatusOr<bool> LookAtFirstByte();
  absl::StatusOr<bool> Handshake();
  absl::StatusOr<bool> ReadMagic();

  static constexpr size_t kParts = 3;
  static const std::array<Part, kParts> kInOrder;

  UniqueFd socket_;  // until `connection_` has it
  const int fd_;
  const std::string peer_;
  const TcpSecurity& security_;
  const Instant deadline_;
  size_t part_ = 0;
  short events_ = POLLIN;
  std::unique_ptr<TlsSession> tls_;  // until `connection_` has it
  absl::StatusOr<std::vector<CallerIdentity>> identities_ = std::vector<CallerIdentity>();
  std::unique_ptr<TcpConnection> connection_;
  std::string said_;  // of the magic
};

// Of the end that dials. `socket` is connected; `address` is what was dialled. Errors as DialTcp.
absl::StatusOr<std::unique_ptr<TcpConnection>> IntroduceDialled(UniqueFd socket,
                                                                const TcpSecurity& security,
                                                                const std::string& address,
                                                                Instant deadline);

}  // namespace tandem
