// A data listener on a free port of 127.0.0.1.
#pragma once

#include <memory>

#include <absl/status/statusor.h>
#include <fmt/format.h>

#include "common/base/status.h"
#include "common/tcp/tcp_listener.h"
#include "common/tcp/tcp_security.h"
#include "common/weights/tcp/slot_listener.h"

namespace tandem::testing {

inline absl::StatusOr<std::unique_ptr<SlotListener>> ListenOnLoopback(
    const TcpSecurity& security = {}) {
  TANDEM_ASSIGN_OR_RETURN(auto listener, TcpListener::Listen("127.0.0.1:0", security));
  const int port = listener->port();
  return std::make_unique<SlotListener>(std::move(listener), fmt::format("127.0.0.1:{}", port));
}

}  // namespace tandem::testing
