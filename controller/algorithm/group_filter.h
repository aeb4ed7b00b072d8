// DAPO's dynamic sampling (Yu et al. 2025, section 3.2, equation 11; verl algorithm.filter_groups):
// a group whose samples all have the same value has zero advantages and no gradient. It is dropped,
// and groups of further prompts replace it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace tandem {

struct GroupFilterOptions {
  bool enable = false;
  std::string metric = "score";  // key of the reward function's result
  int64_t max_batches = 0;       // batches generated for one step at most; 0: kMostBatches
};

// Filters the groups of one step, judged in the order in which their prompts were drawn.
class GroupFilter {
 public:
  static constexpr int64_t kMostBatches = 100;

  // `wanted`: the number of groups of a step.
  GroupFilter(GroupFilterOptions options, int64_t wanted);

  enum class Verdict {
    kKept,
    kAllEqual,  // all values are equal, bit for bit (verl: standard deviation 0)
    kSurplus,   // the step has enough groups already
  };
  // `values`: the metric of each sample, at least two.
  Verdict Judge(const std::vector<double>& values);

  // Call when all generated groups are judged. A batch is `wanted` judged groups, rounded up,
  // because rounds of partial rollout may bring fewer at a time. OutOfRange: the step is not full
  // and no further batch may be generated; the message says why groups were dropped and which
  // settings to change.
  absl::Status EndBatch();

  bool full() const { return kept_ >= wanted_; }
  int64_t kept() const { return kept_; }
  int64_t missing() const { return wanted_ - kept_; }
  // The number of batches, including a begun one.
  int64_t batches() const { return (judged_ + wanted_ - 1) / wanted_; }
  int64_t surplus() const { return surplus_; }
  int64_t all_equal() const;
  // The mean value of dropped groups whose samples were all equal; NaN if there are none.
  double mean_of_all_equal() const;

 private:
  std::string AllEqualText() const;

  const GroupFilterOptions options_;
  const int64_t wanted_;
  int64_t judged_ = 0;
  int64_t kept_ = 0;
  int64_t surplus_ = 0;
  std::map<double, int64_t> all_equal_;  // groups by value
};

}  // namespace tandem
