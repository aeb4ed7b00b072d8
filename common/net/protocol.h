// What every process of a job must agree on.
#pragma once

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

}  // namespace tandem
