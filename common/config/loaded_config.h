// YAML file + `key=value` overrides -> checked, resolved v1::Config.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "tandem/v1/config.pb.h"

namespace tandem {

struct LoadedConfig {
  v1::Config config;                 // resolved: see ResolveConfig
  ConfigOrigins origins;             // only keys that were given
  std::vector<std::string> notices;  // aliases used and keys without effect, for the user to read
};

// Reads `yaml_path` ("" = no file; its `base: FILE`, seen from its folder, is read before it and
// overridden key by key), then applies overrides such as "rollout.n=4" or
// "rollout.stop=[a, b]" in order, then fills in what is documented as "0 = ..." or "empty = ...".
// InvalidArgument lists every unknown key (with the nearest valid one), wrong type, value out of
// range and bad choice, one per line, with file and line. NotFound: no such file.
absl::StatusOr<LoadedConfig> LoadConfig(const std::string& yaml_path,
                                        const std::vector<std::string>& overrides);

}  // namespace tandem
