// What a trainer can be asked to do, and what it answers: plain structs with the meaning of the
// messages of the same names in proto/tandem/v1/trainer.proto.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/types/ledger_snapshot.h"
#include "trainer_worker/forward_backward/mini_batch.h"
#include "trainer_worker/shard/optimizer.h"
#include "trainer_worker/weight_sync/weight_check.h"

namespace tandem {

struct ResetCommand {
  int64_t generation = 0;
  int world_size = 1;
  std::string rendezvous;      // path of the group's Unix socket
  std::string checkpoint_dir;  // empty: the HF model
  int64_t version = 0;
  int64_t step = 0;  // training steps done in that state
};
struct ResetResult {
  int64_t version = 0;
  int64_t parameters = 0;
  int64_t shard_parameters = 0;
  PhaseReport report;
};

struct ForwardBackwardCommand {
  int64_t step = 0;
  int64_t mini_batch = 0;
  int64_t mini_batches = 1;  // of the step
  int64_t version = 0;
  double global_tokens = 0;
  int64_t global_samples = 0;
  bool compare_log_probs = false;
  bool fresh = false;  // see MiniBatchRequest
};
struct ForwardBackwardResult {
  MiniBatchReport batch;
  PhaseReport report;
};

struct OptimizerStepResult {
  OptimizerReport step;
  PhaseReport report;
};

enum class LogProbPolicy {
  kCurrent,
  kReference,
  kProbe,  // the current one, on the probe samples of the paired rollout
};
struct ComputeLogProbsResult {
  int64_t tokens = 0;  // response tokens
  PhaseReport report;
};

struct SyncCommand {
  int64_t version = 0;
  std::vector<int> target_ranks;
  std::string rollout_address;
  int64_t rollout_incarnation = 0;
  bool scramble = false;
};
struct SyncResult {
  PublishReport publish;
  double changed_share = 0;
  PhaseReport report;
};

struct CheckCommand {
  std::string rollout_address;
  int64_t rollout_incarnation = 0;  // 0: that of the last sync
  std::string hf_checkpoint;        // empty: the trainers' own weights
};

struct CheckResult {
  WeightCheckReport weights;
  PhaseReport report;
};

struct SaveCommand {
  std::string directory;
  int64_t version = 0;
};
struct SaveResult {
  int64_t bytes = 0;
  PhaseReport report;
};

// What a trainer is doing now.
struct TrainerStatus {
  std::string phase = "starting";
  std::string last_action;
  int64_t version = -1;  // -1: no state
};

}  // namespace tandem
