// The train loop's settings, as plain values instead of protobuf.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/time/time.h>

#include "common/rollout_correction/rollout_correction.h"
#include "common/types/sample.h"
#include "controller/algorithm/advantage_estimator.h"
#include "controller/algorithm/group_filter.h"
#include "controller/algorithm/kl_penalty.h"
#include "controller/balance/rank_assignment.h"
#include "controller/data/pinned_inputs.h"
#include "controller/partial_rollout/partial_options.h"
#include "controller/partial_rollout/tail_model.h"
#include "controller/step/run_length.h"
#include "controller/workers/rollout_client.h"

namespace tandem {

struct TrainOptions {
  // The run
  int64_t total_steps = 1;
  LengthLimit limit;             // may end the run after fewer steps
  int64_t save_freq = 0;         // steps; 0: by time; below 0: only at the end
  int64_t test_freq = -1;        // steps; <= 0: only at the end
  int64_t save_batch_freq = -1;  // steps; <= 0: never
  bool val_before_train = true;
  std::string local_dir;  // cluster.local_dir, or run_dir
  std::string run_dir;
  std::string model_path;
  std::string config_yaml;                // resolved, for checkpoints
  std::vector<PinnedInput> inputs;        // what the run reads, for checkpoints
  int64_t expected_checkpoint_bytes = 0;  // of one, for messages; 0: unknown
  bool save_moments = true;               // of the optimizer, in checkpoints
  absl::Duration register_timeout = absl::Seconds(60);
  absl::Duration heartbeat_timeout = absl::Seconds(10);  // how long a worker may be silent

  // Generation
  int64_t train_batch_size = 8;  // prompts
  int64_t samples_per_prompt = 8;
  SamplingParams sampling;
  int64_t max_prompt_tokens = 512;
  int64_t max_model_len = 1024;  // tokens, prompt and response
  SleepMode sleep = SleepMode::kDrainOnly;
  TailOptions tail;   // settings of the metrics about the tail of generation
  bool probe = true;  // verify resident weights and compare a probe batch in every step

  PartialOptions partial;

  // Validation
  int64_t validation_samples = 1;  // per prompt
  SamplingParams validation_sampling;

  // Training
  int64_t mini_batch_prompts = 8;
  int64_t epochs = 1;    // passes over the samples of a step
  bool shuffle = false;  // draw mini-batches in a seeded order
  uint64_t shuffle_seed = 1;
  Balance balance = Balance::kByLength;
  bool recompute_old_log_probs = false;
  bool need_reference = false;
  bool compare_log_probs = true;  // with the rollout's, before the first update
  // For all of the batch, also where the first mini-batch is only a part of it.
  bool compare_all_log_probs = true;
  int64_t max_skipped_steps = 3;  // consecutive optimizer steps

  // Algorithm
  GroupFilterOptions filter_groups;
  std::string adv_estimator = "grpo";
  bool greedy_baselines = false;  // the estimator needs the reward of a greedy response
  AdvantageOptions advantage;
  std::vector<std::string> gdpo_reward_keys;  // in the order of advantage.component_weights
  bool kl_in_reward = false;
  double kl_coef = 0;  // in the first step
  KlControl kl_control;
  std::string kl_penalty = "kl";
  // Applied before the advantages with recompute_old_log_probs, otherwise in the loss.
  RolloutCorrectionOptions correction;
};

}  // namespace tandem
