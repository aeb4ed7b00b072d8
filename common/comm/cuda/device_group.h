// The group of ranks that compute on GPUs, over the links between the GPUs.
#pragma once

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

#include "common/comm/shared_memory_communicator.h"

struct CUstream_st;

namespace tandem {

class CudaApi;
class NcclApi;

enum class GroupWay { kAuto, kNccl, kStaged };

struct DeviceGroupOptions {
  SharedMemoryGroupOptions group;
  CudaApi* cuda = nullptr;  // outlives the group, like `nccl`
  int device = 0;
  CUstream_st* compute = nullptr;  // what the rank computes on; collectives are ordered against it
  NcclApi* nccl = nullptr;         // null: this machine has no NCCL
  GroupWay way = GroupWay::kAuto;
  // As in NcclOptions and StagedOptions.
  int64_t scratch_bytes = 64 << 20;
  int64_t staging_bytes = 8 << 20;
};

// Blocks until all ranks have joined, like JoinGroup, with its errors. kAuto uses NCCL if the ranks
// are on one host and every one has the same version of it and a GPU of its own, and otherwise
// stages through pinned host memory; the log says which and why. FailedPrecondition: kNccl was
// asked for and is impossible. A group of one rank stages, as it exchanges nothing.
absl::StatusOr<std::unique_ptr<Communicator>> JoinDeviceGroup(const DeviceGroupOptions& options);

}  // namespace tandem
