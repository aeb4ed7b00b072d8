// A run as Kubernetes objects: made and checked offline, never applied to a cluster.
#pragma once

#include <string>
#include <vector>

#include "controller/cli/kubernetes/pod_groups.h"

namespace tandem {

// A claim on storage that all pods of a run mount.
struct PodMount {
  std::string claim;  // name of a PersistentVolumeClaim
  std::string path;   // absolute
  bool read_only = false;
};

// Which objects start the pods.
enum class PodStarter {
  kJobSet,      // jobset.x-k8s.io/v1alpha2, which has to be installed in the cluster
  kIndexedJobs  // a headless Service and batch/v1 Jobs, which every cluster has
};

struct Manifests {
  PodStarter starter = PodStarter::kJobSet;
  std::string name;            // a DNS label; begins the name of every object
  std::string name_space;      // where all objects are; part of the pods' names in certificates
  std::string image;           // with the programs in PATH
  std::string config;          // text of the configuration file
  std::string config_command;  // how it was made, for the comment at the top
  std::vector<std::string> overrides;  // key=value, for the controller
  std::vector<PodMount> mounts;
  PodPlan pods;
};

// The longest name of which all objects' and pods' names are still DNS labels.
inline constexpr size_t kMaxRunName = 40;

// The names of the Secrets that the objects mount: of the controller, and of all agents.
std::string ControllerSecret(const std::string& name);
std::string WorkerSecret(const std::string& name);

// YAML documents with a comment at the top that says what has to exist beforehand.
std::string KubernetesYaml(const Manifests& manifests);

}  // namespace tandem
