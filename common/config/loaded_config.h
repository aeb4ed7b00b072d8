// YAML file + `key=value` overrides -> checked, resolved v1::Config.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "tandem/v1/config.pb.h"

namespace tandem {

// A key of verl's, or a value of one, that was accepted and has no effect here.
struct KeyWithoutEffect {
  std::string key;     // as it was written
  std::string value;   // as it was written, or "" for a mapping or list
  std::string place;   // "a.yaml:12" or "--set"
  std::string reason;  // why it has none
};

struct LoadedConfig {
  v1::Config config;                 // resolved: see ResolveConfig
  ConfigOrigins origins;             // only keys that were given
  std::vector<std::string> notices;  // aliases used and keys without effect, for the user to read
  std::vector<KeyWithoutEffect> without_effect;  // in order; a notice names all of them, once
};

// An override, and where it was written: "--set", "run.sh:12".
struct ConfigOverride {
  std::string text;
  std::string place;
};

// Reads `yaml_path` ("" = no file; its `base: FILE`, seen from its folder, is read before it and
// overridden key by key), then applies overrides such as "rollout.n=4" or
// "rollout.stop=[a, b]" in order (in YAML's grammar or Hydra's), then fills in what is documented
// as "0 = ..." or "empty = ...". InvalidArgument lists every unknown key (with the nearest valid
// one), wrong type, value out of range and bad choice, one per line, with file and line. NotFound:
// no such file.
absl::StatusOr<LoadedConfig> LoadConfig(const std::string& yaml_path,
                                        const std::vector<std::string>& overrides);

// As LoadConfig without a file, for overrides that come from several places.
absl::StatusOr<LoadedConfig> LoadOverrides(const std::vector<ConfigOverride>& overrides);

}  // namespace tandem
