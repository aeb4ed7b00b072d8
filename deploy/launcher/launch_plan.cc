#include "deploy/launcher/launch_plan.h"

#include <filesystem>
#include <fstream>
#include <string_view>

#include <fmt/format.h>

#include "common/base/log_file.h"
#include "common/config/config.h"
#include "common/formats/finished_mark.h"
#include "common/process/files/run_token.h"
#include "tandem/v1/config.pb.h"

namespace tandem {

LaunchPlan MakeLaunchPlan(const v1::Config& config,
                          const std::string& bin_dir,
                          const std::string& config_path,
                          const std::vector<std::string>& overrides) {
  return {.bin_dir = bin_dir,
          .config_path = config_path,
          .overrides = overrides,
          .run_dir = config.cluster().run_dir(),
          .listen = config.cluster().listen(),
          .log_max_bytes = config.cluster().log_max_mb() << 20,
          .log_files_to_keep = config.cluster().log_files_to_keep(),
          .checkpoint_dir = config.trainer().default_local_dir(),
          .resume_mode =
              config.weight_sync().check_only() ? std::string() : config.trainer().resume_mode(),
          .total_steps =
              config.trainer().max_seconds() > 0 ? 0 : config.trainer().total_training_steps(),
          .device = config.trainer().device() == "cuda" ? "cuda" : "cpu",
          .topology = TopologyOf(config),
          .tls_cert = config.cluster().tls().cert(),
          .tls_key = config.cluster().tls().key(),
          .tls_ca = config.cluster().tls().ca()};
}

bool IsSocketOf(const LaunchPlan& plan, const std::string& name) {
  if (plan.listen == fmt::format("unix:{}/{}", plan.run_dir, name)) return true;
  if (name.starts_with("group-") && name.ends_with(".sock")) return true;
  const auto is_of = [&name](std::string_view role, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      if (name == fmt::format("{}-{}.sock", role, rank)) return true;
    }
    return false;
  };
  const Topology& workers = plan.topology;
  return is_of("trainer", workers.trainers) || is_of("rollout", workers.rollouts) ||
         is_of("pair", workers.rollouts);
}

namespace {

bool IsFinished(const LaunchPlan& plan) {
  return HasMadeAllSteps(ReadFinishedStep(plan.checkpoint_dir), plan.total_steps);
}

}  // namespace

bool FinishedByThisLaunch(const LaunchPlan& plan) {
  if (plan.resume_mode.empty() || plan.launch_id.empty()) return false;
  std::string owner;
  std::ifstream(plan.run_dir + "/launch") >> owner;
  return owner == plan.launch_id && IsFinished(plan);
}

std::string ResumeHint(const LaunchPlan& plan) {
  if (plan.resume_mode.empty()) return "";
  const std::string again = "Started again with the same configuration, the run ";
  std::error_code error;
  if (!std::filesystem::exists(plan.checkpoint_dir + "/latest", error)) {
    return again + "begins from the start: it has no checkpoint yet";
  }
  if (plan.resume_mode == "auto" && IsFinished(plan)) {
    return again +
           "starts over, as it is finished, and what it made moves aside; a larger "
           "trainer.total_training_steps continues it";
  }
  if (plan.resume_mode == "auto") return again + "resumes from its newest checkpoint";
  return fmt::format(
      "{}follows trainer.resume_mode={}; with auto it resumes from its newest checkpoint", again,
      plan.resume_mode);
}

std::vector<std::string> CommandLine(const LaunchPlan& plan, const ProcessId& id) {
  const std::string role = RoleName(id.role);
  std::vector<std::string> argv = {fmt::format("{}/tandem-{}", plan.bin_dir, role)};
  const auto flag = [&argv](const std::string& name, const std::string& value) {
    argv.push_back("--" + name);
    argv.push_back(value);
  };
  if (id.role == Role::kController) {
    flag("config", plan.config_path);
    for (const std::string& text : plan.overrides) flag("set", text);
    flag("run-dir", plan.run_dir);
    flag("listen", plan.listen);
    if (!plan.launch_id.empty()) flag("launch-id", plan.launch_id);
    if (plan.start_paused) argv.push_back("--start-paused");
    if (!plan.log.empty()) flag("log", plan.log);
    return argv;
  }
  flag("controller", plan.listen);
  flag("role", role);
  flag("rank", std::to_string(id.rank));
  const int device = id.role == Role::kTrainer ? plan.topology.DeviceOfTrainer(id.rank)
                                               : plan.topology.DeviceOfRollout(id.rank);
  flag("device", fmt::format("{}:{}", plan.device, device));
  flag("token-file", RunTokenPath(plan.run_dir));
  if (!plan.tls_ca.empty()) {
    flag("tls-cert", plan.tls_cert);
    flag("tls-key", plan.tls_key);
    flag("tls-ca", plan.tls_ca);
  }
  return argv;
}

std::map<std::string, std::string> Environment(const LaunchPlan& plan, const ProcessId& id) {
  std::map<std::string, std::string> env;
  if (id.role == Role::kController) env = plan.controller_env;
  env[kLogFileVariable] = LogPath(plan, id);
  env[kLogMaxBytesVariable] = std::to_string(plan.log_max_bytes);
  env[kLogFilesToKeepVariable] = std::to_string(plan.log_files_to_keep);
  return env;
}

std::string LogPath(const LaunchPlan& plan, const ProcessId& id) {
  return fmt::format("{}/logs/{}-{}.log", plan.run_dir, RoleName(id.role), id.rank);
}

}  // namespace tandem
