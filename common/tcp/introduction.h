// The first bytes of a connection: TLS, then a word of each end, so that both know that the other
// one wants the connection.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/base/clock.h"
#include "common/process/local_socket.h"
#include "common/tcp/tcp_connection.h"
#include "common/tcp/tcp_security.h"

namespace tandem {

// `socket` is connected. Errors as TcpListener::Accept and DialTcp.
absl::StatusOr<std::unique_ptr<TcpConnection>> IntroduceAccepted(UniqueFd socket,
                                                                 const TcpSecurity& security,
                                                                 Instant deadline);
// `address` is what was dialled.
absl::StatusOr<std::unique_ptr<TcpConnection>> IntroduceDialled(UniqueFd socket,
                                                                const TcpSecurity& security,
                                                                const std::string& address,
                                                                Instant deadline);

}  // namespace tandem
