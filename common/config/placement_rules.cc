#include <algorithm>
#include <cstdio>
#include <string>

#include <fmt/format.h>

#include "common/config/check.h"
#include "common/config/config.h"
#include "common/config/rollout_rules.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

constexpr int kMostPorts = 65535;

// One role's keys: the total, and what it has to equal.
struct RoleCounts {
  std::string section;  // "trainer"
  std::string total_key;
  int64_t total = 0;
  int64_t nodes = 0;
  int64_t per_node = 0;  // 0: not given

  std::string Key(const char* name) const { return section + "." + name; }
};

void CheckCounts(const RoleCounts& role, ConfigProblems& problems) {
  const int64_t nodes = std::max<int64_t>(1, role.nodes);
  const int64_t product = nodes * role.per_node;
  problems.Require(
      role.per_node == 0 || role.total == product,
      {role.total_key, role.Key("nnodes"), role.Key("n_gpus_per_node")},
      fmt::format("{} is {}, and {}.nnodes * {}.n_gpus_per_node is {} * {} = {}: set {}={} "
                  "too, or leave one of the two out",
                  role.total_key, role.total, role.section, role.section, nodes, role.per_node,
                  product, role.total_key, product));
  problems.Require(
      role.total % nodes == 0 && role.total >= nodes, {role.total_key, role.Key("nnodes")},
      fmt::format(
          "{} is {} and {}.nnodes is {}: each host has equally many {}s; make the number of "
          "{}s a multiple of the number of hosts",
          role.total_key, role.total, role.section, nodes, role.section, role.section));
}

void CheckPairs(const v1::Cluster& c, ConfigProblems& problems) {
  const bool more_trainers = c.trainers() > c.rollouts();
  problems.Require(
      c.trainers() == c.rollouts(),
      {"cluster.trainers", "cluster.rollouts", "trainer.n_gpus_per_node",
       "rollout.n_gpus_per_node"},
      fmt::format("cluster.trainers is {} and cluster.rollouts is {}: {} rank {} has no partner "
                  "{} rank {}; make the two equal, or set cluster.hybrid_engine=false, which gives "
                  "every worker a device of its own",
                  c.trainers(), c.rollouts(), more_trainers ? "trainer" : "rollout",
                  std::min(c.trainers(), c.rollouts()), more_trainers ? "rollout" : "trainer",
                  std::min(c.trainers(), c.rollouts())));
}

// A trainer and its rollout are on one device, and so on one host.
void CheckHostsOfPairs(const v1::Config& c, ConfigProblems& problems) {
  const int64_t trainers = c.trainer().nnodes();
  const int64_t rollouts = c.rollout().nnodes();
  problems.Require(
      rollouts == 0 || rollouts == trainers, {"trainer.nnodes", "rollout.nnodes"},
      fmt::format("trainer.nnodes is {} and rollout.nnodes is {}, and with "
                  "cluster.hybrid_engine=true a rollout is on the host of its trainer: leave "
                  "rollout.nnodes out, or set cluster.hybrid_engine=false",
                  trainers, rollouts));
}

// Empty, or what is wrong with cluster.port_range, which matches its pattern.
std::string PortRangeProblem(const std::string& text, const Topology& topology, bool elastic) {
  if (text.empty()) return "";
  const PortRange range = PortRangeOf(text);
  if (range.first > range.last || range.last > kMostPorts) {
    return fmt::format(
        "cluster.port_range is {}: the first port has to be the lower one, and the "
        "last at most {}",
        text, kMostPorts);
  }
  // A host may come to run those of all others.
  const int of_others = elastic ? std::max(topology.trainer_hosts, topology.rollout_hosts) : 1;
  const int needed = of_others * (topology.trainers_per_host() + topology.rollouts_per_host());
  if (range.last - range.first + 1 >= needed) return "";
  return fmt::format(
      "cluster.port_range is {}, {} ports, and a host may have {} workers that open "
      "one each: widen it",
      text, range.last - range.first + 1, needed);
}

// What needs a trainer and a rollout on one device.
void CheckApart(const v1::Config& c, ConfigProblems& problems) {
  problems.Require(
      c.rollout().free_cache_engine() == "false", {"rollout.free_cache_engine"},
      fmt::format("rollout.free_cache_engine is {}, and with cluster.hybrid_engine=false rollouts "
                  "have devices of their own, which nobody else needs: set it to false or auto",
                  c.rollout().free_cache_engine()));
  problems.Require(
      c.weight_sync().transport() != "ipc", {"weight_sync.transport"},
      "weight_sync.transport=ipc hands over memory of one GPU, and with "
      "cluster.hybrid_engine=false trainer and rollout are on two: set it to auto or shm");
  const int64_t groups =
      std::max(c.data().train_batch_size(), c.rollout().partial().groups_per_round());
  // Nothing is generated where weights alone are checked, those of every rollout.
  problems.Require(
      c.cluster().rollouts() <= groups || c.weight_sync().check_only(),
      {"cluster.rollouts", "rollout.n_gpus_per_node", "data.train_batch_size"},
      fmt::format("cluster.rollouts is {}, and a step generates {} groups (data.train_batch_size), "
                  "each on one rollout: {} of them would always be idle; start at most {}",
                  c.cluster().rollouts(), groups, c.cluster().rollouts() - groups, groups));
}

// What stays when hosts are lost.
void CheckElastic(const v1::Cluster& cluster, ConfigProblems& problems) {
  if (!cluster.elastic()) return;
  problems.Require(cluster.min_rollouts() <= cluster.rollouts(),
                   {"cluster.min_rollouts", "cluster.rollouts"},
                   fmt::format("cluster.min_rollouts is {} and cluster.rollouts {}: a run cannot "
                               "have fewer than it must; lower the first",
                               cluster.min_rollouts(), cluster.rollouts()));
}

}  // namespace

void CheckPlacement(const v1::Config& config, ConfigProblems& problems) {
  const v1::Cluster& cluster = config.cluster();
  CheckCounts({"trainer", "cluster.trainers", cluster.trainers(), config.trainer().nnodes(),
               config.trainer().n_gpus_per_node()},
              problems);
  CheckCounts({"rollout", "cluster.rollouts", cluster.rollouts(), config.rollout().nnodes(),
               config.rollout().n_gpus_per_node()},
              problems);
  cluster.hybrid_engine() ? CheckPairs(cluster, problems) : CheckApart(config, problems);
  if (cluster.hybrid_engine()) CheckHostsOfPairs(config, problems);
  CheckElastic(cluster, problems);
  const std::string ports =
      PortRangeProblem(cluster.port_range(), TopologyOf(config), cluster.elastic());
  problems.Require(ports.empty(), {"cluster.port_range"}, ports);
}

Topology TopologyOf(const v1::Config& config) {
  const auto count = [](int64_t workers) {
    return static_cast<int>(std::max<int64_t>(1, workers));
  };
  const bool apart = !config.cluster().hybrid_engine();
  const int trainer_hosts = count(config.trainer().nnodes());
  return {.trainers = count(config.cluster().trainers()),
          .rollouts = count(config.cluster().rollouts()),
          .apart = apart,
          .trainer_hosts = trainer_hosts,
          .rollout_hosts = apart ? count(config.rollout().nnodes()) : trainer_hosts};
}

PortRange PortRangeOf(const std::string& text) {
  PortRange range;
  if (!text.empty()) std::sscanf(text.c_str(), "%d-%d", &range.first, &range.last);
  return range;
}

int ComputeThreadsOf(const v1::Config& config, int workers, int64_t cores) {
  if (config.cluster().compute_threads() > 0) {
    return static_cast<int>(config.cluster().compute_threads());
  }
  const Topology topology = TopologyOf(config);
  const bool at_once = topology.apart && (config.rollout().partial().overlap() ||
                                          config.trainer().off_policy_steps() > 0);
  const int64_t sharing = at_once ? topology.devices_per_host() : workers;
  return static_cast<int>(std::max<int64_t>(1, cores / std::max<int64_t>(1, sharing)));
}

}  // namespace tandem
