#include "common/types/topology.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace tandem {
namespace {

std::string Counted(int number, std::string_view what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

// "trainers 2 to 3" of host 1 with two each.
std::string RanksOfHost(std::string_view role, int host, int per_host, int workers) {
  const int first = host * per_host;
  const int last = std::min(first + per_host, workers) - 1;
  return first >= last ? fmt::format("{} {}", role, first)
                       : fmt::format("{}s {} to {}", role, first, last);
}

// The ranks of host `host`; none of a host that has no such workers.
RankRange RangeOfHost(int host, int per_host, int workers) {
  const int first = host * per_host;
  const bool has = host >= 0 && first < workers;
  return has ? RankRange{first, std::min(per_host, workers - first)} : RankRange{};
}

}  // namespace

std::vector<int> Topology::HostCounts() const {
  if (!apart) return {trainer_hosts};
  return {std::max(trainer_hosts, rollout_hosts), trainer_hosts + rollout_hosts};
}

bool Topology::FitsHosts(int hosts) const {
  const std::vector<int> counts = HostCounts();
  return std::find(counts.begin(), counts.end(), hosts) != counts.end();
}

std::string Topology::FittingHosts() const {
  const std::vector<int> counts = HostCounts();
  if (counts.size() == 1) return std::to_string(counts.front());
  return fmt::format("{} (both roles side by side) or {} (the trainers' hosts, then the rollouts')",
                     counts.front(), counts.back());
}

HostShare Topology::ShareOf(int host, int hosts) const {
  const bool of_their_own = apart && hosts == trainer_hosts + rollout_hosts;
  HostShare share{.trainers = RangeOfHost(host, trainers_per_host(), trainers),
                  .rollouts = RangeOfHost(of_their_own ? host - trainer_hosts : host,
                                          rollouts_per_host(), rollouts)};
  if (apart) share.first_rollout_device = share.trainers.count;
  return share;
}

std::string Topology::Text() const {
  const bool one = trainers + rollouts == 2;
  const std::string workers =
      fmt::format("{} and {}", Counted(trainers, "trainer"), Counted(rollouts, "rollout"));
  std::string text = fmt::format("{} that {} {}", workers, one ? "share" : "share in pairs",
                                 Counted(devices(), "device"));
  if (apart) text = fmt::format("{} on {}", workers, Counted(devices(), "device"));
  if (!several_hosts()) return text;
  if (!apart) return fmt::format("{}, on {}", text, Counted(trainer_hosts, "host"));
  return fmt::format("{}, trainers on {}, rollouts on {}", text, Counted(trainer_hosts, "host"),
                     Counted(rollout_hosts, "host"));
}

std::vector<std::string> Topology::HostLines() const {
  std::vector<std::string> lines;
  if (!several_hosts()) return lines;
  for (int host = 0; host < trainer_hosts; ++host) {
    const std::string trainers_there = RanksOfHost("trainer", host, trainers_per_host(), trainers);
    lines.push_back(apart
                        ? fmt::format("host {} with trainers: {}", host + 1, trainers_there)
                        : fmt::format("host {}: {}, {}", host + 1, trainers_there,
                                      RanksOfHost("rollout", host, rollouts_per_host(), rollouts)));
  }
  for (int host = 0; apart && host < rollout_hosts; ++host) {
    lines.push_back(fmt::format("host {} with rollouts: {}", host + 1,
                                RanksOfHost("rollout", host, rollouts_per_host(), rollouts)));
  }
  return lines;
}

}  // namespace tandem
