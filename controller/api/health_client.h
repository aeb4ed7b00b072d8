// Tries whether a server can be reached at the address that it announces.
#pragma once

#include <functional>
#include <string>

#include <absl/status/status.h>
#include <absl/time/time.h>

#include "common/net/security/rpc_security.h"

namespace tandem {

// Calls `done`, on a thread of gRPC's or of the caller, when a gRPC server at `address` has
// answered a health check, or has not within `timeout`. Does not wait for that, but must not be
// called from a callback of a gRPC client. OK: there is one that this process may call. Unavailable
// or DeadlineExceeded: there is none; other codes: as MakeChannel, or what it answered, such as
// PermissionDenied.
void DialBack(const std::string& address,
              const RpcSecurity& security,
              absl::Duration timeout,
              std::function<void(absl::Status)> done);

}  // namespace tandem
