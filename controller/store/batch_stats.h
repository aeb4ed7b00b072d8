// Summarizes a saved batch. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/store/batch_file.h"

namespace tandem {

// The position of a value: a sample, or (position >= 0) one of its response tokens.
struct BatchPosition {
  uint64_t sample_id = 0;
  int64_t position = -1;  // in the response
  double value = 0;
};

// Statistics of one field over all samples or response tokens. min, mean and max skip values that
// are not finite.
struct FieldStats {
  std::string name;
  bool per_token = false;
  int64_t values = 0;
  int64_t samples = 0;  // samples that have the field
  int64_t nan = 0;
  int64_t infinite = 0;
  double min = 0;
  double mean = 0;
  double max = 0;
  std::vector<BatchPosition> not_finite;  // the first few
};

struct GroupStats {
  int64_t group = 0;
  int64_t samples = 0;
  int64_t response_tokens = 0;
  double reward_min = 0;
  double reward_mean = 0;
  double reward_max = 0;
};

// exp(trainer's log-prob - old log-prob) over the tokens for which both are finite. If samples have
// log-probs of the training pass that the run ended with, these are compared with their old
// log-probs; otherwise the recomputed log-probs are compared with the rollout's.
struct RatioStats {
  // The source of the worst token's old log-prob: "rollout" or "recomputed".
  const char* old = "rollout";
  int64_t tokens = 0;
  int64_t exactly_one = 0;
  double min = 1;
  double mean = 1;
  double max = 1;
  // The token with the largest |log ratio|; of equal ones, the first.
  BatchPosition worst;  // value: the ratio
  int64_t group = 0;
  int64_t sequence_position = 0;  // position in prompt and response
  int32_t token = 0;
  double old_log_prob = 0;
  double trainer = 0;
  bool masked = false;          // no loss uses it
  int64_t weight_version = 0;   // of the weights that sampled it
  std::vector<int32_t> before;  // a few tokens of context
  std::vector<int32_t> after;
};

struct BatchStats {
  int64_t samples = 0;
  int64_t prompt_tokens = 0;
  int64_t response_tokens = 0;
  int64_t trained_tokens = 0;
  int64_t off_support = 0;  // samples
  std::map<std::string, int64_t> finish_reasons;
  std::map<int64_t, int64_t> version_tokens;  // response tokens by weight version
  int64_t mixed_samples = 0;                  // samples with tokens of several versions
  // Lengths, scores, then token arrays; only those that the batch has.
  std::vector<FieldStats> fields;
  std::vector<GroupStats> groups;   // by ascending group
  std::optional<RatioStats> ratio;  // absent where the batch has no log-probs of a trainer
  // Ratios to the rollout's log-probs of tokens that older weights sampled, which therefore are not
  // 1. `ratio` excludes these tokens.
  std::optional<RatioStats> stale_ratio;
};

// Reads every sample once or twice.
BatchStats SummarizeBatch(const BatchReader& batch);

}  // namespace tandem
