// The one place that chooses how ranks meet: over shared memory on one host, else over TCP.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/comm/shared_memory_communicator.h"

namespace tandem {

// By `options.hosts`. World size 1 gives a SoloCommunicator. Errors: JoinSharedMemoryGroup's and
// JoinTcpGroup's.
absl::StatusOr<std::unique_ptr<Communicator>> JoinGroup(const SharedMemoryGroupOptions& options);

// The same for two ranks or more, as the base of a group of devices.
absl::StatusOr<std::unique_ptr<HostGroup>> JoinHosts(const SharedMemoryGroupOptions& options);

}  // namespace tandem
