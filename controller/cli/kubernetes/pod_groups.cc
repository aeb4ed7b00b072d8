#include "controller/cli/kubernetes/pod_groups.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

int64_t HostBytes(const MemoryPlan& memory, const PlannedPhase& phase, bool trainer) {
  if (memory.host_is_device) return memory.Bytes(phase, trainer);
  int64_t bytes = 0;
  for (const MemoryLine& line : phase.lines) {
    if (line.trainer == trainer && line.location == Location::kHost) bytes += line.bytes;
  }
  return bytes;
}

PodGroup MakeGroup(std::string name,
                   const HostShare& share,
                   const MemoryPlan& memory,
                   ThreadsByRole threads) {
  const int trainers = share.trainers.count, rollouts = share.rollouts.count;
  PodGroup group{.name = std::move(name)};
  group.workers = trainers + rollouts;
  // Colocated workers take turns on cores, as they do on a GPU.
  group.cores = std::max(trainers * threads.trainer, rollouts * threads.rollout);
  if (!memory.host_is_device) group.gpus = std::max(trainers, rollouts);
  for (const PlannedPhase& phase : memory.phases) {
    const int64_t bytes =
        trainers * HostBytes(memory, phase, true) + rollouts * HostBytes(memory, phase, false);
    group.memory_bytes = std::max(group.memory_bytes, bytes);
  }
  group.memory_bytes += group.workers * kProgramBytes;
  return group;
}

}  // namespace

PodPlan PlanPods(const Topology& topology, const MemoryPlan& memory, ThreadsByRole threads) {
  PodPlan plan;
  plan.hosts = topology.trainer_hosts + (topology.apart ? topology.rollout_hosts : 0);
  // `hosts` that are alike, as each has equally many of a role.
  const auto add = [&](const char* name, int first_host, int hosts) {
    PodGroup group = MakeGroup(name, topology.ShareOf(first_host, plan.hosts), memory, threads);
    group.pods = hosts;
    group.first_host = first_host;
    plan.groups.push_back(std::move(group));
  };
  add(topology.apart ? "trainers" : "workers", 0, topology.trainer_hosts);
  if (topology.apart) add("rollouts", topology.trainer_hosts, topology.rollout_hosts);
  return plan;
}

}  // namespace tandem
