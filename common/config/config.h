// Queries on the configuration of a run, a checked, resolved v1::Config; loaded_config.h reads
// one. The generated messages cost as much to compile as most files that see this header: a
// source that looks into one includes tandem/v1/config.pb.h itself. The schema is
// proto/tandem/v1/config*.proto; everything here reads its (key) options. All functions are pure
// but for the files they are said to read, and thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/rollout_correction/rollout_correction.h"
#include "common/types/batch_limits.h"
#include "common/types/lora_options.h"

namespace tandem::v1 {
class Config;
class Data;
class Reward;
class WeightSync;
}  // namespace tandem::v1

namespace tandem {

// Where a key was given: dotted key -> "configs/a.yaml:12" or "--set".
using ConfigOrigins = std::map<std::string, std::string>;

// Every default, resolved; required keys are empty.
v1::Config DefaultConfig();

// Fills in values that follow from other keys; keys in `given` are left alone. Idempotent.
void ResolveConfig(v1::Config* config, const ConfigOrigins& given);

// Text for `config explain`: "" lists sections, a section its keys; a key gives type, default,
// meaning, unit, range, choices, other names and the difference to verl. Aliases are understood.
// InvalidArgument names the nearest valid key.
absl::StatusOr<std::string> ExplainConfig(const std::string& key);

// docs/reference/config.md, whole.
std::string ConfigMarkdown();

// The whole configuration as YAML that LoadConfig reads back to an equal message.
std::string ConfigToYaml(const v1::Config& config);

// A key whose value another run had otherwise; values as JSON.
struct ConfigChange {
  std::string key;
  std::string before;
  std::string now;
};

// What differs between `before`, a ConfigToYaml text of an earlier run, and `now`, in the order of
// the schema. Keys that only one of the two knows (another version wrote it) are left out.
// InvalidArgument: `before` is no YAML.
absl::StatusOr<std::vector<ConfigChange>> DiffConfig(const std::string& before,
                                                     const v1::Config& now);

// Whether checkpoints hold `content`, a value of actor.checkpoint.save_contents; none with
// save_lora_only.
bool SavesContent(const v1::Config& config, const std::string& content);

// Whether a KL term needs the log-probs of a reference policy.
bool NeedsReference(const v1::Config& config);
// Whether trainers send sums of squared probabilities: an estimator needs them, or a key asks.
bool NeedsSumPiSquared(const v1::Config& config);

// algorithm.rollout_correction, with "none" and empty texts left out.
RolloutCorrectionOptions RolloutCorrectionOf(const v1::Config& config);

// model.lora, for MakeLoraSpec.
LoraOptions LoraOptionsOf(const v1::Config& config);

// Bytes of one weight-sync slot: weight_sync.bucket_mb, with "auto" chosen by the device.
int64_t BucketBytes(const v1::Config& config, bool cuda);

// Whether a sync does without slots, as far as the configuration says: with one trainer whose
// compute dtype is not the masters' and that merges no adapters, and on a GPU unless its transport
// is shared memory. A GPU whose system refuses handles falls back to slots all the same.
bool SyncIsDirect(const v1::Config& config);

// What one trainer may get of a mini-batch to train on, and of a whole step to score.
BatchLimits TrainLimits(const v1::Config& config);
BatchLimits ScoreLimits(const v1::Config& config);
// Of the probe's batch (common/memory/op_sizes.h), every prompt of which is a group of its own.
BatchLimits ProbeLimits(const v1::Config& config);
// Tokens that a sample of the probe may have: as many as a rollout and a micro-batch hold.
int64_t ProbeTokens(const v1::Config& config);

}  // namespace tandem
