// What there is to say of a saved batch at a glance. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/store/batch_file.h"

namespace tandem {

// Where a value lies: of a sample, or (position >= 0) of one of its response tokens.
struct BatchPosition {
  uint64_t sample_id = 0;
  int64_t position = -1;  // in the response
  double value = 0;
};

// Of one field over all samples or response tokens. min, mean and max are of the finite values.
struct FieldStats {
  std::string name;
  bool per_token = false;
  int64_t values = 0;
  int64_t samples = 0;  // that have it
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

// exp(trainer's log-prob - old one) of the tokens that have both, finite: of the training pass that
// the run ended with over what it was compared with, where samples have its log-probs; else of the
// recomputed ones over the rollout's.
struct RatioStats {
  const char* old = "rollout";  // or recomputed: whose the old log-prob of the worst token is
  int64_t tokens = 0;
  int64_t exactly_one = 0;
  double min = 1;
  double mean = 1;
  double max = 1;
  // The token whose ratio is farthest from 1, as |log ratio|; the first of equals.
  BatchPosition worst;  // value: the ratio
  int64_t group = 0;
  int64_t sequence_position = 0;  // prompt tokens counted too
  int32_t token = 0;
  double old_log_prob = 0;
  double trainer = 0;
  bool masked = false;          // no loss counts it
  int64_t weight_version = 0;   // that sampled it
  std::vector<int32_t> before;  // a few tokens of the sequence
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
  int64_t mixed_samples = 0;                  // with tokens of several versions
  std::vector<FieldStats> fields;   // lengths, scores, then what tokens have; those that are there
  std::vector<GroupStats> groups;   // ascending
  std::optional<RatioStats> ratio;  // absent where no trainer's log-probs were saved
  // Of the tokens that older weights sampled than those which the step began with, over the
  // rollout's log-probs: those of other weights, so that the ratio is not 1. `ratio` is without
  // them.
  std::optional<RatioStats> stale_ratio;
};

// Reads every sample, twice at most.
BatchStats SummarizeBatch(const BatchReader& batch);

}  // namespace tandem
