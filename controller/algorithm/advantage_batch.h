// The advantages of a step, one group in memory at a time: every score, then, where the estimator
// whitens, every group once to learn mean and variance, then every group for its result.
#pragma once

#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/algorithm/advantage_estimator.h"
#include "controller/algorithm/masked_moments.h"

namespace tandem {

// Groups may come in any order, the same bits come out; the rows of a group are in order of sample
// id. Not thread-safe.
class AdvantageBatch {
 public:
  AdvantageBatch(const AdvantageEstimator& estimator, AdvantageOptions options)
      : estimator_(estimator), options_(std::move(options)) {}

  // First, of every response of the step.
  void AddScore(float score);

  // Second, every group of the step where whitens(), each once; then Settle. Errors as Compute's.
  bool whitens() const { return estimator_.whitening != Whitening::kNone; }
  absl::Status Observe(const AdvantageGroup& group);
  // FailedPrecondition: the step has fewer than two trained tokens to whiten over.
  absl::Status Settle();

  // Last. InvalidArgument: a row lacks an array that the estimator needs, or has one of another
  // length; else as the estimator's.
  absl::StatusOr<std::vector<RowAdvantage>> Compute(const AdvantageGroup& group) const;

 private:
  absl::StatusOr<std::vector<RowAdvantage>> Raw(const AdvantageGroup& group) const;
  void Whiten(const AdvantageRow& row, RowAdvantage& result) const;

  const AdvantageEstimator estimator_;
  const AdvantageOptions options_;
  BatchScores scores_;
  MaskedMoments moments_;
  Whitener whitener_;
};

}  // namespace tandem
