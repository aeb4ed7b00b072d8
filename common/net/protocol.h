// Conventions that all processes of a job share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "common/process/exit_code.h"
#include "common/types/host_id.h"

namespace tandem {

// Compared at registration. Raised when old workers and new controllers stop understanding each
// other. 2: a step's comparison of log-probs is a message of its own, also of ComputeLogProbs.
inline constexpr int32_t kProtocolVersion = 2;

// The host's boot id. Processes with equal ids run on one kernel.
absl::StatusOr<std::string> ReadBootId();

// The host of this process. Its node is `node` unless that is empty, else the environment's
// SLURMD_NODENAME, else the host's name. InvalidArgument: that is no name of a node.
absl::StatusOr<HostId> ThisHost(const std::string& node = "");

// 32 random hexadecimal digits, new for each process start.
std::string MakeBootNonce();

inline constexpr size_t kLongestSocketPath = 107;  // bytes, a limit of Linux

// The directory of "unix:/path", "" for other addresses.
std::string UnixSocketDirectory(const std::string& address);

// The address at which worker `role` `rank` listens: `listen` unless empty; else <role>-<rank>.sock
// in the folder of the controller's Unix socket; else any free port: of all interfaces where the
// controller is at another host's address, of 127.0.0.1 where it is not.
std::string WorkerListenAddress(const std::string& role,
                                int rank,
                                const std::string& listen,
                                const std::string& controller);

}  // namespace tandem
