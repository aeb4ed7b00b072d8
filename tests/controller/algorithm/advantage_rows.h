// Groups of responses for tests of advantage estimators.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "controller/algorithm/advantage_batch.h"

namespace tandem::testing {

// A response with these rewards, all tokens trained unless `mask` says otherwise.
inline AdvantageRow Row(uint64_t id, std::vector<float> rewards, std::vector<float> mask = {}) {
  AdvantageRow row{.sample_id = id, .tokens = static_cast<int64_t>(rewards.size())};
  row.mask = mask.empty() ? std::vector<float>(rewards.size(), 1.0f) : std::move(mask);
  row.trained = std::count(row.mask.begin(), row.mask.end(), 1.0f);
  for (const float reward : rewards) row.score += reward;
  row.rewards = std::move(rewards);
  return row;
}

// Responses of two tokens with these scores, numbered from `first_id`.
inline AdvantageGroup Scores(const std::vector<float>& scores, uint64_t first_id = 0) {
  AdvantageGroup group;
  for (const float score : scores) group.push_back(Row(first_id + group.size(), {0, score}));
  return group;
}

// All the passes over a step; results by group, in the order of `groups`.
inline absl::StatusOr<std::vector<std::vector<RowAdvantage>>> RunStep(
    const std::string& name,
    const std::vector<AdvantageGroup>& groups,
    const AdvantageOptions& options = {}) {
  const auto estimator = FindAdvantageEstimator(name);
  if (!estimator.ok()) return estimator.status();
  AdvantageBatch step(*estimator, options);
  for (const AdvantageGroup& group : groups) {
    for (const AdvantageRow& row : group) step.AddScore(row.score);
  }
  if (step.whitens()) {
    for (const AdvantageGroup& group : groups) {
      if (const auto status = step.Observe(group); !status.ok()) return status;
    }
    if (const auto status = step.FinishObserving(); !status.ok()) return status;
  }
  std::vector<std::vector<RowAdvantage>> results;
  for (const AdvantageGroup& group : groups) {
    auto result = step.Compute(group);
    if (!result.ok()) return result.status();
    results.push_back(*std::move(result));
  }
  return results;
}

// Of a step with one group.
inline std::vector<RowAdvantage> RunGroup(const std::string& name,
                                          const AdvantageGroup& group,
                                          const AdvantageOptions& options = {}) {
  const auto results = RunStep(name, {group}, options);
  INFO(results.status().ToString());
  REQUIRE(results.ok());
  return results->front();
}

inline std::vector<double> Values(const std::vector<RowAdvantage>& results) {
  std::vector<double> values;
  for (const RowAdvantage& result : results) values.push_back(result.value);
  return values;
}

}  // namespace tandem::testing
