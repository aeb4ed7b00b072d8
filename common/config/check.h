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

// Collects the problems that checks find. Not thread-safe.
class ConfigProblems {
 public:
  // `origins` must outlive this object.
  explicit ConfigProblems(const ConfigOrigins& origins) : origins_(origins) {}

  // Unless `ok`, records `text`, which has the reason and the remedy. `keys` are the keys that a
  // user would change; the places of those that were given are added.
  void Require(bool ok, const std::vector<std::string>& keys, const std::string& text);

  // If `key` was given, records a line for the user that does not stop the run: "a.yaml:3: text".
  void Notice(const std::string& key, const std::string& text);

  // InvalidArgument: every problem, one per line.
  absl::Status status() const;
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  const ConfigOrigins& origins_;
  std::vector<std::string> problems_;
  std::vector<std::string> notices_;
};

// Checks a resolved configuration without reading any file.
using ConfigCheck = void (*)(const v1::Config& config, ConfigProblems& problems);

// Checks values against each other, by the rules of this folder and by `more`, and adds the notices
// of `more` to those of `loaded`. InvalidArgument lists every problem, one per line, with the keys,
// where they were given, and the remedy. Reads no file.
absl::Status CheckConfigValues(LoadedConfig& loaded, std::span<const ConfigCheck> more = {});

// Runs CheckConfigValues, then checks that model directory, data files, certificates and the
// checkpoint of trainer.resume_from_path exist: NotFound lists every missing one.
absl::Status CheckConfig(LoadedConfig& loaded, std::span<const ConfigCheck> more = {});

}  // namespace tandem
