// What a list of runs shows of each, besides its status.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/base/mutex.h"
#include "controller/store/run_store.h"

namespace tandem {

class RunDirView;

struct RunFacts {
  std::string started_at;  // RFC 3339, UTC, of the newest start; "": it has no records
  std::string build;
  std::string numerics_class;
  std::string model;      // model.path of its configuration; "": the configuration is not there
  std::string algorithm;  // algorithm.adv_estimator
  std::vector<double>
      rewards;  // mean rewards of the newest steps, at most kRewards; NaN: no number
  std::optional<double> held_out, held_out_interval;  // of the newest validation
};
inline constexpr int64_t kRewards = 60;

// Remembers what the configurations of runs said, of at most kConfigs: parsing one takes longer
// than all else. Thread-safe.
class RunFactsReader {
 public:
  static constexpr size_t kConfigs = 1000;

  // Errors as RunRecords.
  absl::StatusOr<RunFacts> Read(RunDirView& view);

 private:
  struct ConfigFacts {
    std::string model, algorithm;
  };
  ConfigFacts FactsOf(const std::string& run_dir, const RunInfo& info);

  Mutex mutex_;
  std::map<std::string, ConfigFacts> configs_ ABSL_GUARDED_BY(mutex_);  // by folder and start
};

// A key of which a run's configuration has another value than the defaults of this build; as YAML.
struct ConfigDifference {
  std::string key, value, default_value;
};
struct RunConfig {
  std::string yaml;  // resolved, as the newest start had it
  std::vector<ConfigDifference> differences;
};
// NotFound: the run has no records. InvalidArgument: its configuration is no YAML.
absl::StatusOr<RunConfig> ReadRunConfig(RunDirView& view);

}  // namespace tandem
