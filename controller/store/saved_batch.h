// What a saved batch holds: the samples of one step with everything that was known of them. Plain
// structs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/types/sample.h"

namespace tandem {

struct SavedSample : Sample {
  std::vector<float> sum_pi_squared;  // per response token; empty: not computed
  // Of the training pass that the run ended with, where its trainer saw old log-probs of the same
  // weights that are not the same.
  std::vector<float> training_log_probs;
  int64_t trained_tokens = 0;  // response tokens that the mask leaves
  int64_t mini_batch = 0;
  int rank = 0;          // of the trainer
  double score = 0;      // the reward function's
  double advantage = 0;  // of the whole response, where tokens have no own
  std::map<std::string, double> reward_terms;
};

// The arrays of floats, one value per response token or empty, by their names in files and tables.
struct SavedArray {
  const char* name;
  std::vector<float> SavedSample::*values;
};
inline constexpr std::array<SavedArray, 8> kSavedArrays = {{
    {"log_probs", &SavedSample::log_probs},
    {"old_log_probs", &SavedSample::old_log_probs},
    {"ref_log_probs", &SavedSample::ref_log_probs},
    {"training_log_probs", &SavedSample::training_log_probs},
    {"sum_pi_squared", &SavedSample::sum_pi_squared},
    {"advantages", &SavedSample::advantages},
    {"is_weights", &SavedSample::is_weights},
    {"mask", &SavedSample::mask},
}};

struct SavedMiniBatch {
  int64_t index = 0;
  int64_t samples = 0;
  int64_t trained_tokens = 0;
};

// Of the whole batch. No time and no run id: a step that is made again gives the same bytes.
struct SavedBatchInfo {
  int64_t step = 0;
  int64_t sampling_version = 0;  // weights that the step began with; no token is of later ones
  int64_t version = 0;           // optimizer steps done or skipped when it was saved
  std::string failure;           // why the run stopped at it; empty: it was saved on request
  int64_t epoch = 0;             // of the passes over the samples (actor.ppo_epochs)
  int64_t mini_batch = -1;       // the update that failed; -1: none
  int ranks = 1;
  std::string model_path;                    // with the tokenizer
  std::string checkpoint;                    // newest before the step; empty: none
  std::string config_yaml;                   // resolved
  std::vector<SavedMiniBatch> mini_batches;  // of the newest plan
  std::map<std::string, double> metrics;     // of the step so far
};

}  // namespace tandem
