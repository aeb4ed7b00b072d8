// The command lines of a job's processes, made from its configuration.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/types/topology.h"
#include "deploy/launcher/supervisor.h"

namespace tandem {

struct LaunchPlan {
  std::string bin_dir;                 // where the three programs are
  std::string config_path;             // passed to the controller with `overrides`
  std::vector<std::string> overrides;  // key=value
  std::string run_dir;
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
  std::string tls_cert, tls_key, tls_ca;  // all empty: no TLS
};

LaunchPlan MakeLaunchPlan(const v1::Config& config,
                          const std::string& bin_dir,
                          const std::string& config_path,
                          const std::vector<std::string>& overrides);

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

// run_dir/logs/<role>-<rank>.log
std::string LogPath(const LaunchPlan& plan, const ProcessId& id);

}  // namespace tandem
