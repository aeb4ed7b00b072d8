#include "controller/cli/kubernetes/manifests.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/process/exit_code.h"
#include "controller/cli/kubernetes/yaml_text.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kControllerPort = 7001;
constexpr char kConfigPath[] = "/etc/tandem";
constexpr char kTlsPath[] = "/etc/tandem-tls";
constexpr char kContainer[] = "tandem";
// A file that only its owner reads, as a private key has to be.
constexpr int kOwnerReads = 0400;
// The controller may have to end a call and save; an agent has to end its workers.
constexpr int kControllerGraceSeconds = 600;
constexpr int kAgentGraceSeconds = 120;
constexpr int kControllerStarts = 3;
// Pods of agents are started again for as long as the controller's Job lives, which ends the run.
constexpr int kAgentStarts = 100;
// Without a toleration of its own a pod stays for 300 s on a node that does not answer.
constexpr int kLostNodeSeconds = 30;

// The domain of all pods of the run. Certificates name it with an asterisk, which stands for one
// label, and which TLS takes only where two or more follow.
std::string Domain(const Manifests& m) { return fmt::format("{}.{}.svc", m.name, m.name_space); }

std::string ControllerHost(const Manifests& m) {
  const char* const pod = m.starter == PodStarter::kJobSet ? "controller-0-0" : "controller-0";
  return fmt::format("{}-{}.{}", m.name, pod, Domain(m));
}

Json Metadata(const Manifests& m, const std::string& name) {
  return {{"name", name}, {"namespace", m.name_space}, {"labels", {{"app", m.name}}}};
}

Json ConfigMap(const Manifests& m) {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", Metadata(m, m.name + "-config")},
          {"data", {{"run.yaml", m.config}}}};
}

// Gives every pod of the run a name, also before it is ready: the workers call the controller
// first.
Json Service(const Manifests& m) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", Metadata(m, m.name)},
          {"spec",
           {{"clusterIP", "None"},
            {"publishNotReadyAddresses", true},
            {"selector", {{"app", m.name}}},
            {"ports", {{{"name", "calls"}, {"port", kControllerPort}}}}}}};
}

Json Volumes(const Manifests& m, const std::string& secret) {
  Json volumes = {
      {{"name", "config"}, {"configMap", {{"name", m.name + "-config"}}}},
      {{"name", "tls"}, {"secret", {{"secretName", secret}, {"defaultMode", kOwnerReads}}}}};
  for (size_t i = 0; i < m.mounts.size(); ++i) {
    Json claim = {{"claimName", m.mounts[i].claim}};
    if (m.mounts[i].read_only) claim["readOnly"] = true;
    volumes.push_back({{"name", fmt::format("data-{}", i)}, {"persistentVolumeClaim", claim}});
  }
  return volumes;
}

Json VolumeMounts(const Manifests& m) {
  Json mounts = {{{"name", "config"}, {"mountPath", kConfigPath}, {"readOnly", true}},
                 {{"name", "tls"}, {"mountPath", kTlsPath}, {"readOnly", true}}};
  for (size_t i = 0; i < m.mounts.size(); ++i) {
    Json mount = {{"name", fmt::format("data-{}", i)}, {"mountPath", m.mounts[i].path}};
    if (m.mounts[i].read_only) mount["readOnly"] = true;
    mounts.push_back(mount);
  }
  return mounts;
}

std::string Mebibytes(int64_t bytes) { return fmt::format("{}Mi", (bytes >> 20) + 1); }

Json ControllerContainer(const Manifests& m) {
  Json command = {"tandem-controller", "--config", fmt::format("{}/run.yaml", kConfigPath)};
  const auto set = [&command](const std::string& text) {
    command.push_back("--set");
    command.push_back(text);
  };
  for (const std::string& text : m.overrides) set(text);
  set(fmt::format("cluster.tls.cert={}/controller.pem", kTlsPath));
  set(fmt::format("cluster.tls.key={}/controller.key", kTlsPath));
  set(fmt::format("cluster.tls.ca={}/ca.pem", kTlsPath));
  command.push_back("--listen");
  command.push_back(fmt::format("0.0.0.0:{}", kControllerPort));
  return {{"name", kContainer},
          {"image", m.image},
          {"command", command},
          {"ports", {{{"name", "calls"}, {"containerPort", kControllerPort}}}},
          {"resources", {{"requests", {{"cpu", "2"}, {"memory", "4Gi"}}}}},
          {"volumeMounts", VolumeMounts(m)}};
}

// An agent's host is its pod, as two pods of a node share neither files nor sockets.
Json AgentContainer(const Manifests& m, const PodGroup& group) {
  const std::string index = group.first_host == 0
                                ? "$JOB_COMPLETION_INDEX"
                                : fmt::format("$(({} + JOB_COMPLETION_INDEX))", group.first_host);
  const std::string script = fmt::format(
      "exec tandem-agent --controller {}:{} --host-index {} --hosts {} --node \"$(hostname)\" "
      "--advertise \"$(hostname).{}\" --tls-dir {}",
      ControllerHost(m), kControllerPort, index, m.pods.hosts, Domain(m), kTlsPath);
  Json limits = {{"memory", Mebibytes(group.memory_bytes)}};
  if (group.gpus > 0) limits["nvidia.com/gpu"] = std::to_string(group.gpus);
  return {{"name", kContainer},
          {"image", m.image},
          {"command", {"sh", "-c", script}},
          {"resources", {{"requests", {{"cpu", std::to_string(group.cores)}}}, {"limits", limits}}},
          {"volumeMounts", VolumeMounts(m)}};
}

Json Tolerations() {
  Json tolerations = Json::array();
  for (const char* key : {"node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"}) {
    tolerations.push_back({{"key", key},
                           {"operator", "Exists"},
                           {"effect", "NoExecute"},
                           {"tolerationSeconds", kLostNodeSeconds}});
  }
  return tolerations;
}

Json Pod(const Manifests& m, const std::string& group, Json spec) {
  // A JobSet names its pods' subdomain itself.
  if (m.starter == PodStarter::kIndexedJobs) spec["subdomain"] = m.name;
  return {{"metadata", {{"labels", {{"app", m.name}, {"tandem/group", group}}}}}, {"spec", spec}};
}

Json Job(int pods, int starts) {
  return {{"completionMode", "Indexed"},
          {"completions", pods},
          {"parallelism", pods},
          {"backoffLimit", starts}};
}

// Starting again does not mend what these say (docs/reference/errors.md): the Job fails at once. A
// pod that its node lost is not counted.
Json ControllerJob(const Manifests& m) {
  Json job = Job(1, kControllerStarts);
  job["podReplacementPolicy"] = "Failed";  // the only one that is allowed beside a podFailurePolicy
  const Json hopeless = {kExitRefused, kExitDataError, kExitNoInput, kExitInternal, kExitIoError};
  job["podFailurePolicy"]["rules"] = {
      {{"action", "Ignore"},
       {"onPodConditions", {{{"type", "DisruptionTarget"}, {"status", "True"}}}}},
      {{"action", "FailJob"},
       {"onExitCodes", {{"containerName", kContainer}, {"operator", "In"}, {"values", hopeless}}}}};
  job["template"] = Pod(m, "controller",
                        {{"restartPolicy", "Never"},
                         {"terminationGracePeriodSeconds", kControllerGraceSeconds},
                         {"containers", Json::array({ControllerContainer(m)})},
                         {"volumes", Volumes(m, ControllerSecret(m.name))}});
  return job;
}

Json AgentJob(const Manifests& m, const PodGroup& group) {
  Json job = Job(group.pods, kAgentStarts);
  // The pod of a node that does not answer stays Terminating: its successor must not wait for it.
  job["podReplacementPolicy"] = "TerminatingOrFailed";
  job["template"] = Pod(m, group.name,
                        {{"restartPolicy", "Never"},
                         {"terminationGracePeriodSeconds", kAgentGraceSeconds},
                         {"tolerations", Tolerations()},
                         {"containers", Json::array({AgentContainer(m, group)})},
                         {"volumes", Volumes(m, WorkerSecret(m.name))}});
  return job;
}

// The specs of all Jobs, by the names of their groups.
std::vector<std::pair<std::string, Json>> JobSpecs(const Manifests& m) {
  std::vector<std::pair<std::string, Json>> specs = {{"controller", ControllerJob(m)}};
  for (const PodGroup& group : m.pods.groups) specs.emplace_back(group.name, AgentJob(m, group));
  return specs;
}

Json JobSet(const Manifests& m) {
  Json jobs = Json::array();
  for (const auto& [name, spec] : JobSpecs(m)) {
    jobs.push_back({{"name", name}, {"replicas", 1}, {"template", {{"spec", spec}}}});
  }
  const Json rule = {{"name", "hopeless"},
                     {"action", "FailJobSet"},
                     {"onJobFailureReasons", {"PodFailurePolicy"}}};
  return {
      {"apiVersion", "jobset.x-k8s.io/v1alpha2"},
      {"kind", "JobSet"},
      {"metadata", Metadata(m, m.name)},
      {"spec",
       {{"network",
         {{"enableDNSHostnames", true}, {"subdomain", m.name}, {"publishNotReadyAddresses", true}}},
        // The run is over when the controller is.
        {"successPolicy", {{"operator", "All"}, {"targetReplicatedJobs", {"controller"}}}},
        {"failurePolicy",
         {{"maxRestarts", kControllerStarts},
          {"restartStrategy", "Recreate"},
          {"rules", Json::array({rule})}}},
        {"replicatedJobs", jobs}}}};
}

std::vector<Json> Jobs(const Manifests& m) {
  std::vector<Json> jobs;
  for (const auto& [name, spec] : JobSpecs(m)) {
    jobs.push_back({{"apiVersion", "batch/v1"},
                    {"kind", "Job"},
                    {"metadata", Metadata(m, m.name + "-" + name)},
                    {"spec", spec}});
  }
  return jobs;
}

std::string HostLine(const PodGroup& group) {
  return fmt::format(
      "#   {} pod{} of {}, each with {} worker{}, {} core{}{}, {:.1f} GiB of memory\n", group.pods,
      group.pods == 1 ? "" : "s", group.name, group.workers, group.workers == 1 ? "" : "s",
      group.cores, group.cores == 1 ? "" : "s",
      group.gpus > 0 ? fmt::format(", {} GPU{}", group.gpus, group.gpus == 1 ? "" : "s") : "",
      static_cast<double>(group.memory_bytes) / (1 << 30));
}

std::string SecretCommand(const Manifests& m,
                          const std::string& secret,
                          const std::vector<std::string>& roles) {
  std::string text = fmt::format("#     kubectl -n {} create secret generic {} --from-file=ca.pem",
                                 m.name_space, secret);
  for (const std::string& role : roles) {
    text += fmt::format(" \\\n#       --from-file={0}.pem --from-file={0}.key", role);
  }
  return text + "\n";
}

std::string Preamble(const Manifests& m) {
  std::string text = fmt::format(
      "# Written by: {}\n# Never run on a cluster: checked against the "
      "schemas alone (docs/guides/kubernetes.md).\n#\n# What is planned:\n",
      m.config_command);
  for (const PodGroup& group : m.pods.groups) text += HostLine(group);
  text += "#\n# What has to be there first:\n";
  if (m.starter == PodStarter::kJobSet) text += "#   the JobSet controller\n";
  text += fmt::format("#   the image {}\n", m.image);
  for (const PodMount& mount : m.mounts) {
    text += fmt::format("#   a claim {} on storage that all pods {}, for {}\n", mount.claim,
                        mount.read_only ? "read" : "read and write", mount.path);
  }
  text += fmt::format(
      "#   two secrets with certificates (docs/guides/security.md):\n"
      "#     tandemctl certs init certs\n"
      "#     for role in controller agent trainer rollout; do\n"
      "#       tandemctl certs issue certs --role $role --host '*.{}'\n"
      "#     done\n"
      "#     cd certs\n",
      Domain(m));
  text += SecretCommand(m, ControllerSecret(m.name), {"controller"});
  text += SecretCommand(m, WorkerSecret(m.name), {"agent", "trainer", "rollout"});
  return text;
}

}  // namespace

std::string ControllerSecret(const std::string& name) { return name + "-tls-controller"; }
std::string WorkerSecret(const std::string& name) { return name + "-tls-workers"; }

std::string KubernetesYaml(const Manifests& manifests) {
  std::vector<Json> documents = {ConfigMap(manifests)};
  if (manifests.starter == PodStarter::kJobSet) {
    documents.push_back(JobSet(manifests));
  } else {
    documents.push_back(Service(manifests));
    for (Json& job : Jobs(manifests)) documents.push_back(std::move(job));
  }
  std::string text = Preamble(manifests);
  for (const Json& document : documents) text += "---\n" + YamlText(document);
  return text;
}

}  // namespace tandem
