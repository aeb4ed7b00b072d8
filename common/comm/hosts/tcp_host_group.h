// A group over TCP, for ranks on several hosts.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/comm/group_hosts.h"
#include "common/comm/shared_memory_communicator.h"

namespace tandem {

// Blocks until all ranks have joined, in any order; `options.staging_bytes` is the size of a chunk,
// and `rendezvous` is not used. At least two ranks. Sums have the bits of the group over shared
// memory. A rank may complete a call that others have just given up, as the news of a group's end
// takes its way; its next call fails. Errors: JoinSharedMemoryGroup's; Aborted also where a rank
// joins a newer generation; PermissionDenied: a rank refuses this one's certificate or ticket.
absl::StatusOr<std::unique_ptr<HostGroup>> JoinTcpGroup(const SharedMemoryGroupOptions& options,
                                                        const GroupHosts& hosts);

}  // namespace tandem
