// How the ranks of a group over TCP find each other.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/group_hosts.h"
#include "common/comm/shared_memory_communicator.h"
#include "common/tcp/tcp_connection.h"

namespace tandem {

// Two connections to each other rank, both by rank, with null for the own one.
struct TcpLinks {
  std::vector<std::unique_ptr<TcpConnection>> data;   // of the collectives
  std::vector<std::unique_ptr<TcpConnection>> watch;  // of GroupWatch
};

// Peers that are heard at once; others wait in the listener.
inline constexpr size_t kMostComers = 1024;

// The higher rank dials the lower, and tries again until the deadline whatever else fails: a peer
// that is not there yet, no free descriptor, files of a certificate that is just being replaced.
// Errors: JoinSharedMemoryGroup's. Aborted also where a rank joins a newer generation.
// PermissionDenied: a rank refuses this one's certificate or ticket.
absl::StatusOr<TcpLinks> MeetOverTcp(const SharedMemoryGroupOptions& options,
                                     const GroupHosts& hosts,
                                     size_t most_comers = kMostComers);

}  // namespace tandem
