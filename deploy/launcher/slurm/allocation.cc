#include "deploy/launcher/slurm/allocation.h"

#include <algorithm>
#include <sstream>

#include <absl/strings/numbers.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"

namespace tandem {

absl::StatusOr<Allocation> ReadAllocation(const Variables& variables,
                                          const ShowHostNames& show_host_names) {
  Allocation allocation{.job = variables("SLURM_JOB_ID")};
  const std::string list = variables("SLURM_JOB_NODELIST");
  if (allocation.job.empty() || list.empty()) {
    return FailedPrecondition(
        "--slurm: this is no job of Slurm's (SLURM_JOB_ID and SLURM_JOB_NODELIST are not set): "
        "start the launcher in a batch script, as deploy/slurm/tandem.sbatch does, or within "
        "salloc; without Slurm leave --slurm out");
  }
  if (const std::string parts = variables("SLURM_HET_SIZE"); !parts.empty()) {
    return FailedPrecondition(
        "--slurm: this is a heterogeneous job of {} components, whose loss and requeue are not "
        "handled: ask for all nodes in one component, with --nodes",
        parts);
  }
  // Not set in a job's first life.
  if (!absl::SimpleAtoi(variables("SLURM_RESTART_COUNT"), &allocation.requeues)) {
    allocation.requeues = 0;
  }
  absl::StatusOr<std::string> names = show_host_names(list);
  if (!names.ok()) return Annotate(names.status(), "--slurm: the names of the nodes " + list);
  std::istringstream words(*std::move(names));
  for (std::string name; words >> name;) allocation.nodes.push_back(name);
  if (allocation.nodes.empty()) {
    return FailedPrecondition("--slurm: scontrol show hostnames {} names no node", list);
  }
  return allocation;
}

absl::Status CheckNodes(const Topology& topology, int spare_hosts, const Allocation& allocation) {
  std::vector<int> fitting = topology.HostCounts();
  for (int& nodes : fitting) nodes += spare_hosts;
  const int nodes = static_cast<int>(allocation.nodes.size());
  if (std::find(fitting.begin(), fitting.end(), nodes) != fitting.end()) return absl::OkStatus();
  if (spare_hosts > 0) {
    return InvalidArgument(
        "--slurm: the job has {} node(s) ({}), and the configuration is for {}, of which {} are "
        "spare (cluster.spare_hosts; {}): ask Slurm for so many with --nodes, or change "
        "cluster.spare_hosts",
        nodes, fmt::join(allocation.nodes, " "), fmt::join(fitting, " or "), spare_hosts,
        topology.Text());
  }
  if (!topology.apart) {
    return InvalidArgument(
        "--slurm: the job has {0} node(s) ({1}), and the configuration has {2} host(s) ({3}): ask "
        "Slurm for --nodes={2}, or set trainer.nnodes={0} and a number of trainers that {0} "
        "divides",
        nodes, fmt::join(allocation.nodes, " "), fitting[0], topology.Text());
  }
  return InvalidArgument(
      "--slurm: the job has {} node(s) ({}), and the configuration is for {} with trainers and "
      "rollouts side by side, or for {} with one role on each ({}): ask Slurm for --nodes={} or "
      "--nodes={}, or change trainer.nnodes and rollout.nnodes",
      nodes, fmt::join(allocation.nodes, " "), fitting[0], fitting[1], topology.Text(), fitting[0],
      fitting[1]);
}

}  // namespace tandem
