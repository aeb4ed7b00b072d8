// What every process of a job must agree on.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

// Compared by Register; raised when an old worker can no longer serve a new controller.
inline constexpr int32_t kProtocolVersion = 1;

// Exit codes of workers and controller.
enum ExitCode : int {
  kExitDone = 0,
  kExitRefused = 64,         // config, or refused at registration: a restart does not help
  kExitControllerLost = 69,  // a peer is gone for good
  kExitInternal = 70,
  kExitRestart = 75,  // temporary: start me again
};

// The host's boot id: equal on processes that share a kernel, so that memory can be shared.
absl::StatusOr<std::string> ReadBootId();

// 32 random hexadecimal digits, new for each process start.
std::string MakeBootNonce();

}  // namespace tandem
