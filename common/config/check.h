// Checks of a whole configuration: keys that contradict each other, and files that do not exist.
// Checks of parts of the system above this folder, such as estimators and rewards, are passed in.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/config/config.h"

namespace tandem {

struct LoadedConfig;

// Collects what checks find. Not thread-safe.
class ConfigProblems {
 public:
  // `origins` must outlive this object.
  explicit ConfigProblems(const ConfigOrigins& origins) : origins_(origins) {}

  // Unless `ok`, records `text`, the reason and the remedy, with the places of those of `keys`, the
  // keys that a user would change, that were given.
  void Require(bool ok, const std::vector<std::string>& keys, const std::string& text);

  // Records a line for the user that stops nothing, if `key` was given: "a.yaml:3: text".
  void Notice(const std::string& key, const std::string& text);

  // InvalidArgument: every problem, one per line.
  absl::Status status() const;
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  const ConfigOrigins& origins_;
  std::vector<std::string> problems_;
  std::vector<std::string> notices_;
};

// Reads a resolved configuration and touches no file.
using ConfigCheck = void (*)(const v1::Config& config, ConfigProblems& problems);

// Checks values against each other, here and by `more`, and adds the notices of `more` to
// `loaded`'s. InvalidArgument lists every problem, one per line, with the keys, where they were
// given, and the remedy. Touches no file.
absl::Status CheckConfigValues(LoadedConfig& loaded, std::span<const ConfigCheck> more = {});

// CheckConfigValues, then whether model directory, data files, certificates and the checkpoint of
// trainer.resume_from_path exist: NotFound lists every one that does not.
absl::Status CheckConfig(LoadedConfig& loaded, std::span<const ConfigCheck> more = {});

}  // namespace tandem
