// Where two runs part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

class RunDirView;

// A key of the configuration on which two runs differ; values as YAML.
struct ConfigPair {
  std::string key, a, b;
};

// The first thing that is not equal to the last bit.
struct RunDifference {
  int64_t step = 0;
  // "tokens", "versions", a name of kSavedArrays (controller/store/saved_batch.h), "samples",
  // "prompt", "response", "reward", "weights", "metric"
  std::string what;
  std::string place;  // "sample 0 of group 1, token 5 of the response", "actor/loss", "version 3"
  std::string a, b;   // the values of both runs
};

struct MetricPair {
  std::string name;
  double a = 0, b = 0;
};

struct RunComparison {
  std::vector<ConfigPair> config;         // without names and folders of the runs
  int64_t first_step = 0, last_step = 0;  // of those that both runs have; 0: none
  int64_t steps_a = 0, steps_b = 0;       // newest step of each
  int64_t token_steps = 0;  // of the steps gone through, those of which tokens were compared
  std::optional<RunDifference> difference;
  std::vector<MetricPair> last;  // what is worth knowing of the last common step
};

// Compares step by step, in the order in which things follow from each other: samples (tokens and
// what is known of each, where both runs keep them; else texts and rewards), metrics that do not
// measure time or memory, digests of weights. Stops at the first difference. `step` 0: all common
// steps; else this one alone. FailedPrecondition: there is no common step, or not this one.
absl::StatusOr<RunComparison> CompareRuns(RunDirView& a, RunDirView& b, int64_t step);

}  // namespace tandem
