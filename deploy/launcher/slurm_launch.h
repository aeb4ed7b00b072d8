// A launch within a job of Slurm's: an agent on each of its nodes, and what becomes of the job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "deploy/launcher/launch_plan.h"
#include "deploy/launcher/slurm/allocation.h"

namespace tandem {

namespace v1 {
class Config;
}
struct LoadedConfig;

class SlurmLaunch {
 public:
  // Reads the environment, and asks scontrol for the nodes. `interface`: of every node, by which
  // the others reach it; empty: the nodes' names say. FailedPrecondition, InvalidArgument: no job
  // of Slurm's, or one that does not fit the configuration; NotFound: Slurm's programs.
  static absl::StatusOr<SlurmLaunch> Create(const v1::Config& config, const std::string& interface);

  // On the one node that it is on itself, the launcher starts the workers.
  bool has_agents() const;

  // Adds to a configuration and to the changes with which the controller reads it where the
  // controller listens and with which certificates, unless they say so themselves. Makes
  // certificates in the run directory, which must be there and belong to this launch alone.
  // InvalidArgument: an address that other nodes do not reach; otherwise as ControllerAddressFor
  // and MakeJobCertificates.
  absl::Status Complete(LoadedConfig* loaded, std::vector<std::string>* overrides);

  // What the plan has of Slurm: agents, and the id of the launch, which is that of the job's
  // earlier life after a requeue. Writes the file by which a node is seen to share the run
  // directory. Errors by IoErrorCode.
  absl::Status Extend(LaunchPlan* plan) const;

  // After the run has ended with `code`: begins the job anew where it should. Returns the exit code
  // of the launcher, and prints why where it is not `code`.
  int End(int code, const LaunchPlan& plan) const;

 private:
  SlurmLaunch(Allocation allocation, std::string scontrol, std::string srun, std::string interface)
      : allocation_(std::move(allocation)),
        scontrol_(std::move(scontrol)),
        srun_(std::move(srun)),
        interface_(std::move(interface)) {}

  absl::Status ChooseAddress(LoadedConfig* loaded, std::vector<std::string>* overrides) const;

  Allocation allocation_;
  std::string scontrol_, srun_;  // paths
  std::string interface_;
  std::string tls_dir_;  // of certificates made here; empty: the configuration's are used
};

}  // namespace tandem
