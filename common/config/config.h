// Queries on the configuration of a run, a checked and resolved v1::Config; loaded_config.h reads
// one. A source that looks into a config includes tandem/v1/config.pb.h itself, because the
// generated messages take as long to compile as most files that include this header. The schema is
// proto/tandem/v1/config*.proto; the functions here read its (key) options. All functions are
// thread-safe, and pure unless their comment says that they read files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/rollout_correction/rollout_correction.h"
#include "common/types/batch_limits.h"
#include "common/types/lora_options.h"
#include "common/types/topology.h"

namespace tandem::v1 {
class Config;
class Data;
class Reward;
class WeightSync;
}  // namespace tandem::v1

namespace tandem {

// Where a key was given: dotted key -> "configs/a.yaml:12" or "--set".
using ConfigOrigins = std::map<std::string, std::string>;

// All defaults, resolved; required keys are empty.
v1::Config DefaultConfig();

// Fills in values that follow from other keys; keys in `given` are left alone. Idempotent.
void ResolveConfig(v1::Config* config, const ConfigOrigins& given);

// Text for `config explain`: "" lists sections, a section its keys; a key gives type, default,
// meaning, unit, range, choices, other names and the difference to verl. Aliases are understood.
// Of a key that only verl has, what is done with it and why. InvalidArgument names the nearest
// valid key.
absl::StatusOr<std::string> ExplainConfig(const std::string& key);

// The complete text of docs/reference/config.md.
std::string ConfigMarkdown();

// The complete text of docs/reference/verl.md: every key of verl's, and what is done with it.
std::string VerlMarkdown();

// The whole configuration as YAML that LoadConfig reads back to an equal message.
std::string ConfigToYaml(const v1::Config& config);

// The value of the key `key`, which the schema must have, as YAML in one line.
std::string KeyToYaml(const v1::Config& config, const std::string& key);

// A key that has another value than in an earlier run; values as JSON.
struct ConfigChange {
  std::string key;
  std::string before;
  std::string now;
};

// Compares `before`, a ConfigToYaml text of an earlier run, with `now`. Returns the differences in
// the order of the schema, without keys that only one of the two knows because another version
// wrote it. InvalidArgument: `before` is not YAML.
absl::StatusOr<std::vector<ConfigChange>> DiffConfig(const std::string& before,
                                                     const v1::Config& now);

// Whether checkpoints contain `content`, a value of actor.checkpoint.save_contents. With
// save_lora_only they contain none.
bool SavesContent(const v1::Config& config, const std::string& content);

// Whether a KL term needs the log-probs of a reference policy.
bool NeedsReference(const v1::Config& config);
// Whether trainers send sums of squared probabilities, because an estimator needs them or a key
// asks for them.
bool NeedsSumPiSquared(const v1::Config& config);

// algorithm.rollout_correction, without "none" and empty texts.
RolloutCorrectionOptions RolloutCorrectionOf(const v1::Config& config);

// model.lora, for MakeLoraSpec.
LoraOptions LoraOptionsOf(const v1::Config& config);

// The workers that the run has, and their devices.
Topology TopologyOf(const v1::Config& config);

// cluster.port_range: both ends belong to it. 0 to 0, any free port, where it is empty.
struct PortRange {
  int first = 0;
  int last = 0;
};
PortRange PortRangeOf(const std::string& text);

// cluster.local_dir or, where it is empty, cluster.run_dir.
std::string LocalDirOf(const v1::Config& config);

// cluster.compute_threads, or the part of `cores` for a worker of a role with `workers` workers on
// a host: at least 1. Trainers and rollouts take turns, and so share all cores, unless rollouts
// with devices of their own generate while the trainers train.
int ComputeThreadsOf(const v1::Config& config, int workers, int64_t cores);

// Bytes of one weight-sync slot: weight_sync.bucket_mb, with "auto" chosen by the device.
int64_t BucketBytes(const v1::Config& config, bool cuda);

// Whether a sync uses no slots, as far as the configuration decides: with one trainer that computes
// in another dtype than the masters' and merges no adapters, and on a GPU only if its transport is
// not shared memory. A GPU whose system refuses handles still falls back to slots.
bool SyncIsDirect(const v1::Config& config);
// Whether weights may go over TCP, into slots of the rollout's own: weight_sync.transport has them
// go there, or trainers and rollouts may be on different hosts.
bool SyncMayUseTcp(const v1::Config& config);

// Limits of one trainer's part of a mini-batch, which it trains on, and of a step, which it scores.
BatchLimits TrainLimits(const v1::Config& config);
BatchLimits ScoreLimits(const v1::Config& config);
// Whether a step has a pass of its own to compare log-probs with the rollout's: with
// trainer.off_policy_steps those of the next batch; else where its first mini-batch is only a part
// of its batch, and no other pass computes log-probs of all of it.
bool HasComparePass(const v1::Config& config);
// Limits of the probe's batch (common/memory/op_sizes.h), in which every prompt is a group of its
// own.
BatchLimits ProbeLimits(const v1::Config& config);
// Maximum tokens of a probe sample: what a rollout and a micro-batch can hold.
int64_t ProbeTokens(const v1::Config& config);

}  // namespace tandem
