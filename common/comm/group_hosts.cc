#include "common/comm/group_hosts.h"

#include <algorithm>
#include <map>

#include "common/base/status.h"

namespace tandem {

bool UsesTcp(const GroupHosts& hosts) {
  if (hosts.members.empty()) return false;
  const std::string& first = hosts.members[0].host;
  return hosts.always || std::any_of(hosts.members.begin(), hosts.members.end(),
                                     [&](const GroupMember& one) { return one.host != first; });
}

absl::StatusOr<std::vector<std::vector<int>>> RanksByHost(const std::vector<GroupMember>& members) {
  std::vector<std::vector<int>> ranks;
  std::map<std::string, int> last;  // by host
  for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
    const auto [known, added] = last.try_emplace(members[rank].host, rank);
    if (added) {
      ranks.push_back({rank});
      continue;
    }
    if (known->second != rank - 1) {
      return InvalidArgument(
          "ranks {} and {} are on host {} and are no neighbours: ranks must be "
          "numbered host by host",
          known->second, rank, members[rank].host);
    }
    known->second = rank;
    ranks.back().push_back(rank);
  }
  return ranks;
}

bool UsesChain(HostWay way, const std::vector<std::vector<int>>& ranks_by_host) {
  if (way != HostWay::kAuto) return way == HostWay::kChain;
  size_t most = 0;
  for (const std::vector<int>& ranks : ranks_by_host) most = std::max(most, ranks.size());
  // Direct, a host of `most` ranks sends most * (hosts - 1) / hosts times what the chain sends.
  return most * (ranks_by_host.size() - 1) > ranks_by_host.size();
}

}  // namespace tandem
