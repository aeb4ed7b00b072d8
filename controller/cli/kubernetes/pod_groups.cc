#include "controller/cli/kubernetes/pod_groups.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

// Workers of one role in a pod.
struct Share {
  int trainers = 0, rollouts = 0;
};

int64_t HostBytes(const MemoryPlan& memory, const PlannedPhase& phase, bool trainer) {
  if (memory.host_is_device) return memory.Bytes(phase, trainer);
  int64_t bytes = 0;
  for (const MemoryLine& line : phase.lines) {
    if (line.trainer == trainer && line.location == Location::kHost) bytes += line.bytes;
  }
  return bytes;
}

PodGroup MakeGroup(std::string name,
                   const Share& share,
                   const MemoryPlan& memory,
                   ThreadsByRole threads) {
  PodGroup group{.name = std::move(name)};
  group.workers = share.trainers + share.rollouts;
  // Colocated workers take turns on cores, as they do on a GPU.
  group.cores = std::max(share.trainers * threads.trainer, share.rollouts * threads.rollout);
  if (!memory.host_is_device) group.gpus = std::max(share.trainers, share.rollouts);
  for (const PlannedPhase& phase : memory.phases) {
    const int64_t bytes = share.trainers * HostBytes(memory, phase, true) +
                          share.rollouts * HostBytes(memory, phase, false);
    group.memory_bytes = std::max(group.memory_bytes, bytes);
  }
  group.memory_bytes += group.workers * kProgramBytes;
  return group;
}

}  // namespace

PodPlan PlanPods(const Topology& topology, const MemoryPlan& memory, ThreadsByRole threads) {
  PodPlan plan;
  const auto add = [&](const char* name, const Share& share, int pods) {
    PodGroup group = MakeGroup(name, share, memory, threads);
    group.pods = pods;
    group.first_host = plan.hosts;
    plan.hosts += pods;
    plan.groups.push_back(std::move(group));
  };
  const int trainers = topology.trainers_per_host();
  const int rollouts = topology.rollouts_per_host();
  if (topology.apart) {
    add("trainers", {.trainers = trainers}, topology.trainer_hosts);
    add("rollouts", {.rollouts = rollouts}, topology.rollout_hosts);
  } else {
    add("workers", {.trainers = trainers, .rollouts = rollouts}, topology.trainer_hosts);
  }
  return plan;
}

}  // namespace tandem
