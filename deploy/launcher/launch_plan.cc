#include "deploy/launcher/launch_plan.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <fmt/format.h>

#include "common/base/log_file.h"
#include "common/config/config.h"
#include "common/formats/finished_mark.h"
#include "common/process/files/run_token.h"
#include "common/tcp/certificate_folder.h"
#include "deploy/launcher/slurm/step.h"
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
          .log_dir = config.cluster().run_dir() + "/logs",
          .pids_file = config.cluster().run_dir() + "/pids.json",
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
          .tls_ca = config.cluster().tls().ca(),
          .token_file = RunTokenPath(config.cluster().run_dir()),
          .elastic = config.cluster().elastic()};
}

RpcSecurity TlsFilesIn(const std::string& dir, const std::string& role, int rank) {
  CertificateFiles files = CertificateFilesOf(dir, role, rank);
  std::error_code unknown;
  if (!std::filesystem::exists(files.cert, unknown)) files = CertificateFilesOf(dir, role);
  return {.cert = files.cert, .key = files.key, .ca = files.ca};
}

std::vector<ProcessId> ProcessesOf(const LaunchPlan& plan) {
  std::vector<ProcessId> ids = {{Role::kController, 0}};
  if (const AgentPlan& agents = plan.agents; !agents.nodes.empty()) {
    const int hosts = agents.srun.empty() ? 0 : static_cast<int>(agents.nodes.size());
    for (int host = 0; host < hosts; ++host) ids.push_back({Role::kAgent, host});
    return ids;
  }
  const Topology& topology = plan.topology;
  for (int rank = 0; rank < std::max(topology.trainers, topology.rollouts); ++rank) {
    if (rank < topology.trainers) ids.push_back({Role::kTrainer, rank});
    if (rank < topology.rollouts) ids.push_back({Role::kRollout, rank});
  }
  return ids;
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

namespace {

std::string DeviceOf(const LaunchPlan& plan, const ProcessId& id) {
  if (const auto given = plan.devices.find(id); given != plan.devices.end()) return given->second;
  const int number = id.role == Role::kTrainer ? plan.topology.DeviceOfTrainer(id.rank)
                                               : plan.topology.DeviceOfRollout(id.rank);
  return fmt::format("{}:{}", plan.device, number);
}

}  // namespace

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
  if (id.role == Role::kAgent) {
    return StepCommand({.srun = plan.agents.srun,
                        .node = plan.agents.nodes.at(static_cast<size_t>(id.rank)),
                        .shared_file = plan.agents.shared_file,
                        .argv = AgentCommand(plan, id.rank)});
  }
  flag("controller", plan.listen);
  flag("role", role);
  flag("rank", std::to_string(id.rank));
  flag("device", DeviceOf(plan, id));
  if (!plan.token_file.empty()) flag("token-file", plan.token_file);
  const RpcSecurity tls =
      plan.tls_dir.empty()
          ? RpcSecurity{.cert = plan.tls_cert, .key = plan.tls_key, .ca = plan.tls_ca}
          : TlsFilesIn(plan.tls_dir, role, id.rank);
  if (tls.enabled()) {
    flag("tls-cert", tls.cert);
    flag("tls-key", tls.key);
    flag("tls-ca", tls.ca);
  }
  argv.insert(argv.end(), plan.network_flags.begin(), plan.network_flags.end());
  return argv;
}

std::string CertificatesOfAgents(const std::string& cert) {
  if (cert.empty()) return "";
  const std::string folder = std::filesystem::absolute(cert).parent_path();
  std::error_code unknown;
  return std::filesystem::exists(CertificateFilesOf(folder, "agent").cert, unknown) ? folder : "";
}

std::vector<std::string> AgentCommand(const LaunchPlan& plan, int host) {
  const AgentPlan& agents = plan.agents;
  const std::string& node = agents.nodes.at(static_cast<size_t>(host));
  const std::string run_dir = std::filesystem::absolute(plan.run_dir);  // the agent starts anywhere
  std::vector<std::string> argv = {plan.bin_dir + "/tandem-agent"};
  const auto flag = [&argv](const std::string& name, const std::string& value) {
    argv.push_back("--" + name);
    argv.push_back(value);
  };
  flag("controller", plan.listen);
  flag("host-index", std::to_string(host));
  flag("hosts", std::to_string(agents.nodes.size()));
  if (!node.empty()) flag("node", node);
  if (!agents.interface.empty()) {
    flag("interface", agents.interface);
  } else if (!node.empty()) {
    flag("advertise", node);
  }
  // Where the job goes on without the batch host, nobody else begins it anew.
  if (plan.elastic && !agents.job.empty()) {
    flag("requeue-job", agents.job);
    flag("launch-sign", agents.shared_file);
  }
  flag("bin-dir", plan.bin_dir);
  flag("log-dir", run_dir + "/logs");
  if (!agents.grace.empty()) flag("grace", agents.grace);
  if (!agents.tls_dir.empty()) {
    flag("tls-dir", agents.tls_dir);
  } else if (!plan.tls_ca.empty()) {
    flag("tls-cert", plan.tls_cert);
    flag("tls-key", plan.tls_key);
    flag("tls-ca", plan.tls_ca);
  } else {
    flag("token-file", RunTokenPath(run_dir));
  }
  return argv;
}

std::map<std::string, std::string> Environment(const LaunchPlan& plan, const ProcessId& id) {
  std::map<std::string, std::string> env;
  // Slurm writes it, from another host: it does not begin anew.
  if (id.role == Role::kAgent) return env;
  if (id.role == Role::kController) env = plan.controller_env;
  env[kLogFileVariable] = LogPath(plan, id);
  env[kLogMaxBytesVariable] = std::to_string(plan.log_max_bytes);
  env[kLogFilesToKeepVariable] = std::to_string(plan.log_files_to_keep);
  return env;
}

std::string LogPath(const LaunchPlan& plan, const ProcessId& id) {
  const std::string name = id.role == Role::kAgent
                               ? plan.agents.nodes.at(static_cast<size_t>(id.rank))
                               : std::to_string(id.rank);
  return fmt::format("{}/{}-{}.log", plan.log_dir, RoleName(id.role), name);
}

}  // namespace tandem
