// How the ranks of a group find each other and get the segment's descriptor.
#pragma once

#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/shared_memory_communicator.h"
#include "common/process/local_socket.h"

namespace tandem {

struct GroupLink {
  UniqueFd segment;
  int64_t staging_bytes = 0;
  // To each other rank on rank 0 (by rank, [0] unused), to rank 0 alone on the others. They carry
  // nothing after the rendezvous: their end tells that the process behind is gone.
  std::vector<UniqueFd> connections;
};

// Errors: JoinSharedMemoryGroup's.
absl::StatusOr<GroupLink> MeetGroup(const SharedMemoryGroupOptions& options);

}  // namespace tandem
