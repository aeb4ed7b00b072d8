// Mean and variance over the trained tokens of a step, gathered one response at a time (verl's
// masked_whiten: (x - mean) / sqrt(var + 1e-8), var with n - 1).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/algorithm/advantage_estimator.h"

namespace tandem {

// x -> (x - mean) * scale
struct Whitener {
  double mean = 0;
  double scale = 1;
  double operator()(double x) const { return (x - mean) * scale; }
};

// Keeps three numbers per response. The result does not depend on the order of Add: responses are
// summed up in order of sample id, in double, squares about the mean of the response and then about
// that of the step (Chan, Golub and LeVeque 1979), which cancels nothing. Not thread-safe.
class MaskedMoments {
 public:
  // `trained` tokens, all with this value.
  void Add(uint64_t sample_id, double value, int64_t trained);
  // The values that `mask` keeps; both [tokens].
  void Add(uint64_t sample_id, const std::vector<double>& values, const std::vector<float>& mask);

  // FailedPrecondition: fewer than two tokens.
  absl::StatusOr<Whitener> Finish() const;

 private:
  struct Moments {
    double count = 0;
    double mean = 0;
    double squares = 0;  // about the mean
  };
  std::map<uint64_t, Moments> responses_;
};

// The advantages of a step, one group in memory at a time: every score, then, where the estimator
// whitens, every group once to learn mean and variance, then every group for its result.

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
