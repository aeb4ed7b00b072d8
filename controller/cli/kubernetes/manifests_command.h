// `tandemctl manifests kubernetes`: the objects that run a configuration on Kubernetes.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/process/exit_code.h"

namespace tandem {

struct ManifestsOptions {
  std::string config;  // YAML file
  std::vector<std::string> overrides;
  std::string format = "jobset";  // or jobs
  std::string name = "tandem";
  std::string name_space = "default";
  std::string image;
  std::vector<std::string> mounts;  // CLAIM=/path or CLAIM=/path:ro
  // A folder with the model's config.json on this machine; empty: model.path, which need not be
  // here.
  std::string model_dir;
  std::string device_memory;  // of one GPU: "80GiB"
  std::string command_line;   // for the comment at the top
};

// Prints the documents. InvalidArgument: a flag is malformed, or a path of the configuration is on
// no mount, by its key; NotFound: the model is not on this machine; FailedPrecondition: the plan
// does not fit the devices. `failed_at`: the stage of an error.
absl::Status KubernetesManifestsCommand(const ManifestsOptions& options,
                                        FailedAt* failed_at,
                                        std::ostream& out);

}  // namespace tandem
