// DAPO's dynamic sampling (Yu et al. 2025, section 3.2, equation 11; verl algorithm.filter_groups):
// a group whose samples are all worth the same has no advantages and teaches nothing; it is
// dropped, and the groups of further prompts take its place.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace tandem {

struct GroupFilterOptions {
  bool enable = false;
  std::string metric = "score";  // key of the reward
  int64_t max_batches = 0;       // generated for one step; 0: kMostBatches
};

// The groups of one step, judged in the order in which their prompts were drawn.
class GroupFilter {
 public:
  static constexpr int64_t kMostBatches = 100;

  // `wanted`: groups that make a step.
  GroupFilter(GroupFilterOptions options, int64_t wanted);

  enum class Verdict {
    kKept,
    kAllEqual,  // no two samples differ: not by one bit, where verl asks for a deviation above 0
    kSurplus,   // the step is full already
  };
  // `values`: the metric of each sample, at least two.
  Verdict Judge(const std::vector<double>& values);

  // To be called when all that was generated is judged. Every `wanted` groups, or what is left of
  // so many, are a batch: rounds of partial rollout may bring fewer at a time. OutOfRange: the step
  // is not full and no further batch may be generated; says what became of the groups and what to
  // change.
  absl::Status EndBatch();

  bool full() const { return kept_ >= wanted_; }
  int64_t kept() const { return kept_; }
  int64_t missing() const { return wanted_ - kept_; }
  // Those that have begun.
  int64_t batches() const { return (judged_ + wanted_ - 1) / wanted_; }
  int64_t surplus() const { return surplus_; }
  int64_t all_equal() const;
  // Of the dropped groups, the mean of what all their samples have; NaN without any.
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
