// The command lines of a job's processes, made from its configuration or, for an agent, from what
// its controller and its own flags say.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/net/security/rpc_security.h"
#include "common/types/topology.h"
#include "deploy/launcher/supervisor.h"

namespace tandem {

// How the workers of several hosts are started: by an agent on each.
struct AgentPlan {
  std::vector<std::string> nodes;  // the hosts' names, by index; empty: there are no agents
  std::string srun;                // starts them; empty: a user does
  std::string job;                 // of Slurm's, that they are started in
  std::string shared_file;         // which a node that srun starts something on has to see
  std::string interface;           // of every node, by which others reach it; empty: its name is
  std::string tls_dir;             // of the certificates of agents and workers
  std::string grace;               // their --grace; empty: its default
};

struct LaunchPlan {
  std::string bin_dir;                 // where the programs are
  std::string config_path;             // passed to the controller with `overrides`
  std::vector<std::string> overrides;  // key=value
  std::string run_dir;
  std::string log_dir;    // run_dir/logs, or another that a flag names
  std::string pids_file;  // lists the running processes; empty: none does
  std::string listen;     // the controller's address
  std::string launch_id;  // equal for all starts of the controller by one launcher
  std::map<std::string, std::string> controller_env;  // variables for the controller alone
  int64_t log_max_bytes = 0;                          // after which a log begins anew; 0: never
  int64_t log_files_to_keep = 3;
  bool start_paused = false;
  std::string log;             // the controller's --log; empty: its default
  std::string checkpoint_dir;  // trainer.default_local_dir
  std::string resume_mode;     // trainer.resume_mode; empty if weights are only checked
  // trainer.total_training_steps; 0 where the config alone does not tell the number of steps.
  int64_t total_steps = 0;
  std::string device;  // cpu or cuda; a worker's is "cpu:<number>"
  Topology topology;
  std::string tls_cert, tls_key, tls_ca;  // all empty: no TLS, or that of tls_dir
  // A folder with the files of each role, as `tandemctl certs` writes them: trainer-1.pem, or
  // trainer.pem for all trainers, .key likewise, and ca.pem. Empty: the files above.
  std::string tls_dir;
  std::string token_file;  // for the workers' calls; empty: none
  // Of the workers' host: --node, --advertise and --interface, each with its value.
  std::vector<std::string> network_flags;
  std::map<ProcessId, std::string> devices;  // an agent's, "cuda:1"; else by the topology
  AgentPlan agents;                          // a launcher's
  bool elastic = false;                      // the run may go on without some of them
};

// The three files of `role` in a folder as tls_dir; `rank` -1: of a role that has none.
RpcSecurity TlsFilesIn(const std::string& dir, const std::string& role, int rank);

LaunchPlan MakeLaunchPlan(const v1::Config& config,
                          const std::string& bin_dir,
                          const std::string& config_path,
                          const std::vector<std::string>& overrides);

// The processes of a launcher, in the order in which it starts them: the controller, then the
// trainers and rollouts of one host by turns, or the agents of several that it starts.
std::vector<ProcessId> ProcessesOf(const LaunchPlan& plan);

// The folder of `cert` if it has a certificate of agents too, as `tandemctl certs` makes it beside
// those of workers; else "": one certificate has all roles.
std::string CertificatesOfAgents(const std::string& cert);

// argv of the agent of a host, as it is started there.
std::vector<std::string> AgentCommand(const LaunchPlan& plan, int host);

// argv of one process.
std::vector<std::string> CommandLine(const LaunchPlan& plan, const ProcessId& id);

// Whether a socket with this name in the run directory belongs to the launch: to its controller,
// its workers or their groups. Workers that were started by hand have other ranks.
bool IsSocketOf(const LaunchPlan& plan, const std::string& name);

// Whether this launch's run has made all its steps, as what it wrote says; false where weights are
// only checked, and before the run has taken over what an earlier launch left.
bool FinishedByThisLaunch(const LaunchPlan& plan);

// Says from where a run that was stopped would resume; empty where weights are only checked.
std::string ResumeHint(const LaunchPlan& plan);

// The variables of one process, over the launcher's own environment.
std::map<std::string, std::string> Environment(const LaunchPlan& plan, const ProcessId& id);

// log_dir/<role>-<rank>.log; an agent's has the name of its node
std::string LogPath(const LaunchPlan& plan, const ProcessId& id);

}  // namespace tandem
