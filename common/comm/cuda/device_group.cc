#include "common/comm/cuda/device_group.h"

#include <cstring>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/comm/communicator.h"
#include "common/comm/cuda/nccl_communicator.h"
#include "common/comm/cuda/staged_communicator.h"
#include "common/comm/group_hosts.h"
#include "common/comm/hosts/join_group.h"

namespace tandem {
namespace {

// What a rank tells the others before they choose.
struct Member {
  char uuid[64] = {};
  int32_t nccl_version = 0;  // 0: none
  GroupWay way = GroupWay::kAuto;
};

absl::StatusOr<Member> Describe(const DeviceGroupOptions& options) {
  Member member;
  TANDEM_ASSIGN_OR_RETURN(const CudaDeviceInfo info, options.cuda->Describe(options.device));
  std::strncpy(member.uuid, info.uuid.c_str(), sizeof(member.uuid) - 1);
  if (options.nccl != nullptr) member.nccl_version = options.nccl->version();
  member.way = options.way;
  return member;
}

// Why NCCL cannot connect the ranks; empty where it can.
std::string Obstacle(const DeviceGroupOptions& options, const std::vector<Member>& members) {
  // Its order of a sum follows the links between hosts: the bits would depend on who is where.
  if (options.group.hosts != nullptr && UsesTcp(*options.group.hosts)) {
    return "the ranks are on several hosts, between which sums in rank order are not built for "
           "NCCL";
  }
  for (size_t rank = 0; rank < members.size(); ++rank) {
    if (members[rank].nccl_version == 0) return fmt::format("rank {} has no NCCL", rank);
    if (members[rank].nccl_version != members[0].nccl_version) {
      return fmt::format("rank 0 has NCCL {} and rank {} has {}", members[0].nccl_version, rank,
                         members[rank].nccl_version);
    }
    for (size_t other = 0; other < rank; ++other) {
      if (std::strcmp(members[rank].uuid, members[other].uuid) != 0) continue;
      return fmt::format("ranks {} and {} share the GPU {}", other, rank, members[rank].uuid);
    }
  }
  return "";
}

absl::StatusOr<std::unique_ptr<Communicator>> Stage(std::unique_ptr<Communicator> host,
                                                    const DeviceGroupOptions& options) {
  StagedOptions staged;
  staged.cuda = options.cuda;
  staged.device = options.device;
  staged.compute = options.compute;
  staged.deadline = options.group.deadline;
  staged.staging_bytes = options.staging_bytes;
  return StagedCommunicator::Create(std::move(host), staged);
}

absl::StatusOr<std::unique_ptr<Communicator>> Connect(std::unique_ptr<HostGroup> host,
                                                      const DeviceGroupOptions& options) {
  NcclOptions nccl;
  nccl.cuda = options.cuda;
  nccl.device = options.device;
  nccl.compute = options.compute;
  nccl.nccl = options.nccl;
  nccl.group_generation = options.group.generation;
  nccl.deadline = options.group.deadline;
  nccl.single_channel = options.group.single_channel;
  nccl.scratch_bytes = options.scratch_bytes;
  return NcclCommunicator::Create(std::move(host), nccl);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> JoinDeviceGroup(const DeviceGroupOptions& options) {
  if (options.group.world_size == 1 && options.group.rank == 0) {
    return Stage(std::make_unique<SoloCommunicator>(), options);
  }
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<HostGroup> host, JoinHosts(options.group));
  const absl::StatusOr<Member> mine = Describe(options);
  if (!mine.ok()) return host->Fail(mine.status());
  std::vector<Member> members(static_cast<size_t>(options.group.world_size));
  TANDEM_RETURN_IF_ERROR(host->AllGather(&*mine, sizeof(Member), members.data()));
  bool demanded = false, staged = false;  // by any rank; all must choose the same path
  for (const Member& member : members) {
    demanded = demanded || member.way == GroupWay::kNccl;
    staged = staged || member.way == GroupWay::kStaged;
  }
  const std::string obstacle =
      staged ? "a rank asked for pinned host memory" : Obstacle(options, members);
  if (obstacle.empty()) {
    if (options.group.rank == 0) {
      LogInfo("collectives of {} ranks go through NCCL {}", members.size(), mine->nccl_version);
    }
    return Connect(std::move(host), options);
  }
  if (demanded) {
    return host->Fail(FailedPrecondition("NCCL was asked for and cannot be used: {}", obstacle));
  }
  if (options.group.rank == 0) {
    LogInfo("collectives of {} ranks go through pinned host memory: {}", members.size(), obstacle);
  }
  return Stage(std::move(host), options);
}

}  // namespace tandem
