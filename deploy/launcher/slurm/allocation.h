// The nodes that Slurm gave a job, as the environment of the job's batch script tells.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/types/topology.h"

namespace tandem {

struct Allocation {
  std::string job;                 // SLURM_JOB_ID, the same after a requeue
  std::vector<std::string> nodes;  // host names, in Slurm's order
  int requeues = 0;                // so often the job has begun anew
};

// The value of a variable, "" where it is not set.
using Variables = std::function<std::string(const std::string& name)>;
// What `scontrol show hostnames LIST` prints.
using ShowHostNames = std::function<absl::StatusOr<std::string>(const std::string& list)>;

// FailedPrecondition: not within an allocation, or one of several components. Otherwise as
// `show_host_names`.
absl::StatusOr<Allocation> ReadAllocation(const Variables& variables,
                                          const ShowHostNames& show_host_names);

// Whether the workers of `topology` fit on so many nodes: colocated, as many as hosts; apart, as
// many as the role with most has, where the roles are side by side, or a node for each host of
// either; and `spare_hosts` more. InvalidArgument has the numbers, and says what to set.
absl::Status CheckNodes(const Topology& topology, int spare_hosts, const Allocation& allocation);

}  // namespace tandem
