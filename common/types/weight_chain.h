// How one trainer's rollouts are put in a chain, in which each passes the weights on to the next
// one.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tandem {

// The fewest rollouts over TCP that are a chain, as weight_sync.fan_out says; 0: none ever are.
int ShortestChain(const std::string& fan_out);

// Whether two rollouts, by their ranks, run on one host.
using ShareHost = std::function<bool(int one, int other)>;
// The order in which they are a chain: the same rollouts, those of a host behind the first of them,
// so that the weights come to each host once.
std::vector<int> ChainOrder(const std::vector<int>& rollouts, const ShareHost& share_host);

}  // namespace tandem
