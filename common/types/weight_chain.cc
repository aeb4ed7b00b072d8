#include "common/types/weight_chain.h"

#include <algorithm>

namespace tandem {

int ShortestChain(const std::string& fan_out) {
  if (fan_out == "star") return 0;
  // From three on a chain is shorter than sending in turn by more than what it costs.
  return fan_out == "chain" ? 2 : 3;
}

std::vector<int> ChainOrder(const std::vector<int>& rollouts, const ShareHost& share_host) {
  std::vector<std::vector<int>> hosts;
  for (const int rollout : rollouts) {
    const auto own = std::find_if(hosts.begin(), hosts.end(), [&](const auto& host) {
      return share_host(host.front(), rollout);
    });
    if (own != hosts.end()) {
      own->push_back(rollout);
    } else {
      hosts.push_back({rollout});
    }
  }
  std::vector<int> ordered;
  for (const auto& host : hosts) ordered.insert(ordered.end(), host.begin(), host.end());
  return ordered;
}

}  // namespace tandem
