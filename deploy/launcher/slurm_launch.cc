#include "deploy/launcher/slurm_launch.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <sys/utsname.h>

#include "common/base/clock.h"
#include "common/base/local_address.h"
#include "common/base/status.h"
#include "common/config/loaded_config.h"
#include "common/net/addresses/announced_address.h"
#include "common/process/exit_code.h"
#include "common/process/files/private_files.h"
#include "deploy/launcher/messages.h"
#include "deploy/launcher/slurm/controller_place.h"
#include "deploy/launcher/slurm/requeue.h"
#include "deploy/launcher/slurm/run_program.h"
#include "deploy/launcher/slurm/step.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

std::string Variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

void Tell(const std::string& text) { PrintAs("launcher", text); }

std::string OwnNode() {
  const std::string named = Variable("SLURMD_NODENAME");
  if (!named.empty()) return named;
  utsname host{};
  uname(&host);
  return host.nodename;
}

// The node that is not this host, whose route tells the own address; the only one otherwise.
std::string OtherNode(const Allocation& allocation) {
  for (const std::string& node : allocation.nodes) {
    if (node != OwnNode()) return node;
  }
  return allocation.nodes.front();
}

std::string NewestCheckpoint(const LaunchPlan& plan) {
  std::string name;
  std::ifstream(plan.checkpoint_dir + "/latest") >> name;
  return name;
}

}  // namespace

absl::StatusOr<SlurmLaunch> SlurmLaunch::Create(const v1::Config& config,
                                                const std::string& interface) {
  std::string scontrol;
  const auto show_host_names = [&](const std::string& list) -> absl::StatusOr<std::string> {
    TANDEM_ASSIGN_OR_RETURN(scontrol, FindProgram("scontrol"));
    return RunProgram({scontrol, "show", "hostnames", list});
  };
  TANDEM_ASSIGN_OR_RETURN(Allocation allocation, ReadAllocation(Variable, show_host_names));
  TANDEM_RETURN_IF_ERROR(
      CheckNodes(TopologyOf(config), static_cast<int>(config.cluster().spare_hosts()), allocation));
  const absl::StatusOr<std::string> srun = FindProgram("srun");
  if (!srun.ok()) return Annotate(srun.status(), "--slurm");
  return SlurmLaunch(std::move(allocation), scontrol, *srun, interface);
}

absl::Status SlurmLaunch::ChooseAddress(LoadedConfig* loaded,
                                        std::vector<std::string>* overrides) const {
  v1::Cluster& cluster = *loaded->config.mutable_cluster();
  if (loaded->origins.contains("cluster.listen")) {
    if (!IsLocalAddress(cluster.listen()) && !IsWildcard(cluster.listen())) return absl::OkStatus();
    return InvalidArgument(
        "cluster.listen={}: the other nodes of the job ({}) do not reach it: leave the key out, or "
        "name an address of this host on the network between the nodes",
        cluster.listen(), OtherNode(allocation_));
  }
  // Two jobs on one host begin to look for a port in different places.
  const auto seed = static_cast<int>(std::hash<std::string>()(allocation_.job) % 10'000);
  TANDEM_ASSIGN_OR_RETURN(const std::string address,
                          ControllerAddressFor(OtherNode(allocation_), interface_, seed));
  cluster.set_listen(address);
  overrides->push_back("cluster.listen=" + address);
  return absl::OkStatus();
}

bool SlurmLaunch::has_agents() const {
  return allocation_.nodes.size() > 1 || allocation_.nodes.front() != OwnNode();
}

absl::Status SlurmLaunch::Complete(LoadedConfig* loaded, std::vector<std::string>* overrides) {
  if (!has_agents()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(ChooseAddress(loaded, overrides));
  v1::Cluster& cluster = *loaded->config.mutable_cluster();
  v1::Tls& tls = *cluster.mutable_tls();
  if (!tls.cert().empty() || !tls.key().empty() || !tls.ca().empty()) return absl::OkStatus();
  if (!interface_.empty()) {
    return InvalidArgument(
        "--interface {}: certificates of the job's own name its nodes, not the addresses of their "
        "interfaces: make some with tandemctl certs, and set cluster.tls.cert, cluster.tls.key and "
        "cluster.tls.ca",
        interface_);
  }
  const std::string dir = std::filesystem::absolute(cluster.run_dir()) / "slurm-certs";
  TANDEM_RETURN_IF_ERROR(Annotate(
      MakeJobCertificates(dir, cluster.listen(), allocation_.nodes, RealClock().WallNow()), dir));
  tls_dir_ = dir;
  tls.set_cert(dir + "/controller.pem");
  tls.set_key(dir + "/controller.key");
  tls.set_ca(dir + "/ca.pem");
  overrides->insert(overrides->end(),
                    {"cluster.tls.cert=" + tls.cert(), "cluster.tls.key=" + tls.key(),
                     "cluster.tls.ca=" + tls.ca()});
  return absl::OkStatus();
}

absl::Status SlurmLaunch::Extend(LaunchPlan* plan) const {
  plan->launch_id =
      LaunchIdOf(plan->run_dir, allocation_.job, allocation_.requeues, plan->launch_id);
  if (!has_agents()) return absl::OkStatus();
  plan->agents.nodes = allocation_.nodes;
  plan->agents.srun = srun_;
  plan->agents.interface = interface_;
  plan->agents.job = allocation_.job;
  if (!tls_dir_.empty()) plan->agents.tls_dir = tls_dir_;
  // A name that no node has looked for before, as some file systems remember what is not there.
  plan->agents.shared_file = std::filesystem::absolute(plan->run_dir) /
                             fmt::format("shared-{}-{}", allocation_.requeues, plan->launch_id);
  return WritePrivateFile(plan->agents.shared_file, "");
}

int SlurmLaunch::End(int code, const LaunchPlan& plan) const {
  std::error_code none;
  if (!plan.agents.shared_file.empty()) std::filesystem::remove(plan.agents.shared_file, none);
  if (!WantsRequeue(code)) return code;
  const std::string checkpoint = NewestCheckpoint(plan);
  const absl::StatusOr<int> count = CountRequeue(plan.run_dir, allocation_.job, checkpoint);
  if (!count.ok()) {
    Tell("The job does not begin anew: " + std::string(count.status().message()));
    return code;
  }
  if (*count > kMostRequeuesInPlace) {
    Tell(fmt::format(
        "The job has begun anew {} times {}, and does not again: see why it ended (above, and in "
        "{}/logs), ask for more time, or save more often (trainer.save_freq)",
        kMostRequeuesInPlace,
        checkpoint.empty() ? "without a first checkpoint" : "since checkpoint " + checkpoint,
        plan.run_dir));
    return kExitInternal;
  }
  Tell(fmt::format("Job {} begins anew, from {}.", allocation_.job,
                   checkpoint.empty() ? "the start" : "checkpoint " + checkpoint));
  const absl::StatusOr<std::string> asked = RunProgram(RequeueCommand(scontrol_, allocation_.job));
  if (asked.ok()) return kExitDone;
  Tell(
      fmt::format("{}; a job that was submitted without --requeue cannot begin anew: submit it "
                  "again, which continues the run",
                  std::string(asked.status().message())));
  return code;
}

}  // namespace tandem
