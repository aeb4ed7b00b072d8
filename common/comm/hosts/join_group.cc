#include "common/comm/hosts/join_group.h"

#include "common/base/log.h"
#include "common/comm/group_hosts.h"
#include "common/comm/hosts/tcp_host_group.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Communicator>> JoinGroup(const SharedMemoryGroupOptions& options) {
  if (options.world_size == 1 && options.rank == 0) return std::make_unique<SoloCommunicator>();
  return JoinHosts(options);
}

absl::StatusOr<std::unique_ptr<HostGroup>> JoinHosts(const SharedMemoryGroupOptions& options) {
  if (options.hosts == nullptr || !UsesTcp(*options.hosts)) return JoinHostGroup(options);
  return JoinTcpGroup(options, *options.hosts);
}

}  // namespace tandem
