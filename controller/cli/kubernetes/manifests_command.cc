#include "controller/cli/kubernetes/manifests_command.h"

#include <algorithm>
#include <array>

#include <absl/strings/ascii.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"
#include "common/config/check.h"
#include "common/config/config.h"
#include "common/config/loaded_config.h"
#include "common/device/device_memory.h"
#include "common/formats/files.h"
#include "controller/algorithm/advantage_estimator.h"
#include "controller/cli/kubernetes/manifests.h"
#include "controller/plan/memory_plan.h"
#include "controller/plan/plan_input.h"

namespace tandem {
namespace {

// Lower-case letters, digits and hyphens within, as RFC 1123 has it.
bool IsDnsLabel(const std::string& text) {
  const auto alphanumeric = [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c));
  };
  return !text.empty() && alphanumeric(text.front()) && alphanumeric(text.back()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return alphanumeric(c) || c == '-'; });
}

absl::Status CheckName(const char* flag, const std::string& name, size_t longest) {
  if (IsDnsLabel(name) && name.size() <= longest) return absl::OkStatus();
  return InvalidArgument(
      "{} {}: it becomes part of DNS names, so it has lower-case letters, digits and hyphens "
      "within, at most {} of them",
      flag, name, longest);
}

absl::StatusOr<PodMount> ParseMount(const std::string& text) {
  PodMount mount;
  const size_t equals = text.find('=');
  mount.claim = text.substr(0, equals);
  mount.path = equals == std::string::npos ? "" : text.substr(equals + 1);
  if (mount.path.ends_with(":ro")) {
    mount.read_only = true;
    mount.path.resize(mount.path.size() - 3);
  }
  while (mount.path.size() > 1 && mount.path.ends_with('/')) mount.path.pop_back();
  if (!IsDnsLabel(mount.claim) || !mount.path.starts_with('/') || mount.path == "/") {
    return InvalidArgument(
        "--mount {}: write CLAIM=/path, or CLAIM=/path:ro for what is only read, with the name of "
        "a PersistentVolumeClaim",
        text);
  }
  return mount;
}

bool IsBelow(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder + "/");
}

// The innermost mount decides, as for a file system.
const PodMount* FindMount(const std::vector<PodMount>& mounts, const std::string& path) {
  const PodMount* found = nullptr;
  for (const PodMount& mount : mounts) {
    if (!IsBelow(path, mount.path)) continue;
    if (found == nullptr || mount.path.size() > found->path.size()) found = &mount;
  }
  return found;
}

absl::Status CheckPath(const std::vector<PodMount>& mounts,
                       const std::string& key,
                       const std::string& path,
                       bool written) {
  const PodMount* const mount = FindMount(mounts, path);
  if (mount == nullptr) {
    return InvalidArgument(
        "{}={} is on no --mount: name the claim that holds it, as --mount CLAIM={}, or set the key "
        "to "
        "a path below one",
        key, path, path.substr(0, path.find('/', 1)));
  }
  if (written && mount->read_only) {
    return InvalidArgument("{}={} is written, and --mount {}={}:ro may only be read", key, path,
                           mount->claim, mount->path);
  }
  return absl::OkStatus();
}

// Every path of the configuration that pods open.
absl::Status CheckPaths(const std::vector<PodMount>& mounts, const v1::Config& config) {
  TANDEM_RETURN_IF_ERROR(CheckPath(mounts, "cluster.run_dir", config.cluster().run_dir(), true));
  TANDEM_RETURN_IF_ERROR(
      CheckPath(mounts, "trainer.default_local_dir", config.trainer().default_local_dir(), true));
  TANDEM_RETURN_IF_ERROR(CheckPath(mounts, "model.path", config.model().path(), false));
  for (const std::string& file : config.data().train_files()) {
    TANDEM_RETURN_IF_ERROR(CheckPath(mounts, "data.train_files", file, false));
  }
  for (const std::string& file : config.data().val_files()) {
    TANDEM_RETURN_IF_ERROR(CheckPath(mounts, "data.val_files", file, false));
  }
  return absl::OkStatus();
}

// The paths as they were read here: a relative one would start elsewhere in a pod.
std::vector<std::string> PathSettings(const v1::Config& config) {
  const auto list = [](const char* key, const auto& files) {
    return fmt::format("{}=[{}]", key, fmt::join(files, ", "));
  };
  return {"cluster.run_dir=" + config.cluster().run_dir(),
          "trainer.default_local_dir=" + config.trainer().default_local_dir(),
          "model.path=" + config.model().path(),
          list("data.train_files", config.data().train_files()),
          list("data.val_files", config.data().val_files())};
}

// What the manifests set themselves must not be set twice.
absl::Status CheckCluster(const v1::Cluster& cluster) {
  if (cluster.spare_hosts() > 0) {
    return InvalidArgument(
        "cluster.spare_hosts={}: no pods are written that run nothing, as Kubernetes replaces a "
        "lost one itself; leave the key out",
        cluster.spare_hosts());
  }
  if (cluster.tls().ca().empty() && cluster.tls().cert().empty() && cluster.tls().key().empty()) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "cluster.tls is set: in pods the files are those of the Secrets, which the manifests name; "
      "leave the key out");
}

absl::StatusOr<std::vector<PodMount>> ParseMounts(const std::vector<std::string>& texts) {
  std::vector<PodMount> mounts;
  for (const std::string& text : texts) {
    TANDEM_ASSIGN_OR_RETURN(PodMount mount, ParseMount(text));
    for (const PodMount& other : mounts) {
      if (other.path == mount.path) {
        return InvalidArgument("--mount {}: {} is mounted from {} already", text, mount.path,
                               other.claim);
      }
    }
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

// How many cores the nodes of the cluster have is unknown here: at least one for each worker.
ThreadsByRole ThreadsOfPods(const v1::Config& config) {
  const int threads = std::max(1, static_cast<int>(config.cluster().compute_threads()));
  return {.trainer = threads, .rollout = threads};
}

absl::StatusOr<ModelSpec> SpecOf(const ManifestsOptions& options, const v1::Config& config) {
  const std::string dir = options.model_dir.empty() ? config.model().path() : options.model_dir;
  absl::StatusOr<ModelSpec> spec = LoadModelSpec(dir);
  if (spec.ok()) return spec;
  if (!absl::IsNotFound(spec.status())) {
    return Annotate(spec.status(), options.model_dir.empty() ? "model.path" : "--model-dir");
  }
  return MakeStatus(absl::StatusCode::kNotFound,
                    "{}; the memory of pods is planned from the model's config.json: give "
                    "--model-dir, a folder on this machine that has it",
                    std::string(spec.status().message()));
}

}  // namespace

absl::Status KubernetesManifestsCommand(const ManifestsOptions& options,
                                        FailedAt* failed_at,
                                        std::ostream& out) {
  *failed_at = FailedAt::kConfig;
  Manifests manifests{.name = options.name,
                      .name_space = options.name_space,
                      .image = options.image,
                      .config_command = options.command_line,
                      .overrides = options.overrides};
  manifests.starter = options.format == "jobs" ? PodStarter::kIndexedJobs : PodStarter::kJobSet;
  TANDEM_RETURN_IF_ERROR(CheckName("--name", options.name, kMaxRunName));
  TANDEM_RETURN_IF_ERROR(CheckName("--namespace", options.name_space, 63));
  TANDEM_ASSIGN_OR_RETURN(manifests.mounts, ParseMounts(options.mounts));
  TANDEM_ASSIGN_OR_RETURN(LoadedConfig loaded, LoadConfig(options.config, options.overrides));
  TANDEM_RETURN_IF_ERROR(
      CheckConfigValues(loaded, std::array<ConfigCheck, 1>{CheckAdvantageEstimator}));
  TANDEM_RETURN_IF_ERROR(CheckCluster(loaded.config.cluster()));
  TANDEM_RETURN_IF_ERROR(CheckPaths(manifests.mounts, loaded.config));
  for (std::string& setting : PathSettings(loaded.config)) {
    manifests.overrides.push_back(std::move(setting));
  }
  TANDEM_ASSIGN_OR_RETURN(
      const int64_t device_bytes,
      PlannedDeviceBytes(options.device_memory, loaded.config, CpuDeviceMemoryBytes));
  *failed_at = FailedAt::kInputs;
  TANDEM_ASSIGN_OR_RETURN(const ModelSpec spec, SpecOf(options, loaded.config));
  const MemoryPlanInput input = MakeMemoryPlanInput(spec, loaded.config, device_bytes);
  const MemoryPlan memory = PlanMemory(spec, input);
  if (!memory.fits()) {
    *failed_at = FailedAt::kConfig;
    return MakeStatus(absl::StatusCode::kFailedPrecondition,
                      "the run does not fit its devices: tandemctl plan {} shows by how much, and "
                      "what helps",
                      options.config);
  }
  manifests.pods = PlanPods(TopologyOf(loaded.config), memory, ThreadsOfPods(loaded.config));
  TANDEM_ASSIGN_OR_RETURN(manifests.config, ReadWholeFile(options.config));
  out << KubernetesYaml(manifests);
  return absl::OkStatus();
}

}  // namespace tandem
