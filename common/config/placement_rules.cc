#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "common/config/check.h"
#include "common/config/config.h"
#include "common/config/rollout_rules.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

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
  problems.Require(role.nodes <= 1, {role.Key("nnodes")},
                   fmt::format("{}.nnodes is {}: a run has one host so far; set it to 1, and "
                               "{}.n_gpus_per_node to the number of {}s on this host",
                               role.section, role.nodes, role.section, role.section));
  const int64_t nodes = std::max<int64_t>(1, role.nodes);
  const int64_t product = nodes * role.per_node;
  problems.Require(
      role.per_node == 0 || role.total == product,
      {role.total_key, role.Key("nnodes"), role.Key("n_gpus_per_node")},
      fmt::format("{} is {}, and {}.nnodes * {}.n_gpus_per_node is {} * {} = {}: set {}={} "
                  "too, or leave one of the two out",
                  role.total_key, role.total, role.section, role.section, nodes, role.per_node,
                  product, role.total_key, product));
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
  problems.Require(
      c.cluster().rollouts() <= groups,
      {"cluster.rollouts", "rollout.n_gpus_per_node", "data.train_batch_size"},
      fmt::format("cluster.rollouts is {}, and a step generates {} groups (data.train_batch_size), "
                  "each on one rollout: {} of them would always be idle; start at most {}",
                  c.cluster().rollouts(), groups, c.cluster().rollouts() - groups, groups));
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
}

Topology TopologyOf(const v1::Config& config) {
  const auto count = [](int64_t workers) {
    return static_cast<int>(std::max<int64_t>(1, workers));
  };
  return {.trainers = count(config.cluster().trainers()),
          .rollouts = count(config.cluster().rollouts()),
          .apart = !config.cluster().hybrid_engine()};
}

int ComputeThreadsOf(const v1::Config& config, int workers, int64_t cores) {
  if (config.cluster().compute_threads() > 0) {
    return static_cast<int>(config.cluster().compute_threads());
  }
  const Topology topology = TopologyOf(config);
  const bool at_once = topology.apart && (config.rollout().partial().overlap() ||
                                          config.trainer().off_policy_steps() > 0);
  const int64_t sharing = at_once ? topology.devices() : workers;
  return static_cast<int>(std::max<int64_t>(1, cores / std::max<int64_t>(1, sharing)));
}

}  // namespace tandem
