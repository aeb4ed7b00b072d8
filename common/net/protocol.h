// What every process of a job must agree on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "common/process/exit_code.h"

namespace tandem {

// Compared by Register; raised when an old worker can no longer serve a new controller.
inline constexpr int32_t kProtocolVersion = 1;

// The host's boot id: equal on processes that share a kernel, so that memory can be shared.
absl::StatusOr<std::string> ReadBootId();

// 32 random hexadecimal digits, new for each process start.
std::string MakeBootNonce();

// Where the sockets of a run are: all beside the controller's.
inline constexpr size_t kLongestSocketPath = 107;

// The directory of "unix:/path", "" for other addresses.
std::string UnixSocketDirectory(const std::string& address);

// Where the worker `role` `rank` listens: at `listen` if that is given; else at <role>-<rank>.sock
// beside the controller's Unix socket; where that has none, or the path is too long for a socket,
// at any free port of 127.0.0.1.
std::string WorkerListenAddress(const std::string& role,
                                int rank,
                                const std::string& listen,
                                const std::string& controller);

}  // namespace tandem
