// Which pods a run needs, and how much each of them: a pod is one host of the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/plan/memory_plan.h"

namespace tandem {

// Pods that are alike. Each runs one agent, which starts the workers of its host.
struct PodGroup {
  std::string name;  // "workers" (colocated), "trainers", "rollouts"
  int pods = 1;
  int first_host = 0;        // index of the first pod's host among all hosts of the run
  int workers = 1;           // of each pod
  int gpus = 0;              // of each pod; 0 on CPUs
  int cores = 1;             // of each pod
  int64_t memory_bytes = 0;  // host memory of each pod
};

struct PodPlan {
  std::vector<PodGroup> groups;
  int hosts = 0;  // pods of all groups
};

// Colocated: one group with a pod for each of the trainers' hosts. Apart: the trainers' hosts and
// then the rollouts'. `threads`: of one worker. On CPUs the memory of a pod is the largest sum over
// the plan's phases of what its workers hold; on GPUs what of it lies in host memory. Both with
// kProgramBytes for each worker, which no ledger has.
PodPlan PlanPods(const Topology& topology, const MemoryPlan& memory, ThreadsByRole threads);

// An allowance for what no ledger has: a worker's code, its libraries, and buffers of gRPC.
inline constexpr int64_t kProgramBytes = int64_t{1} << 30;

}  // namespace tandem
