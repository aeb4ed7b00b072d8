// Mean and variance over the trained tokens of a step, accumulated one response at a time (verl's
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
// summed in order of sample id, in double; squares are taken about the mean of the response and
// then shifted to the mean of the step (Chan, Golub and LeVeque 1979), which avoids cancellation.
// Not thread-safe.
class MaskedMoments {
 public:
  // Adds `trained` tokens that all have this value.
  void Add(uint64_t sample_id, double value, int64_t trained);
  // Adds the values that `mask` keeps; both [tokens].
  void Add(uint64_t sample_id, const std::vector<double>& values, const std::vector<float>& mask);

  // InvalidArgument: fewer than two tokens.
  absl::StatusOr<Whitener> Finish() const;

 private:
  struct Moments {
    double count = 0;
    double mean = 0;
    double squares = 0;  // sum of squared distances from the mean
  };
  std::map<uint64_t, Moments> responses_;
};

// The advantages of a step, with one group in memory at a time. Takes every score first; then, if
// the estimator whitens, every group once for mean and variance; then every group for its result.
// Groups may come in any order without changing a bit of the result; the rows of a group must be in
// order of sample id. Not thread-safe.
class AdvantageBatch {
 public:
  AdvantageBatch(const AdvantageEstimator& estimator, AdvantageOptions options)
      : estimator_(estimator), options_(std::move(options)) {}

  // First: call for every response of the step.
  void AddScore(float score);

  // Second, only if whitens(): call Observe for every group of the step, once each, and then
  // FinishObserving. Errors as Compute's.
  bool whitens() const { return estimator_.whitening != Whitening::kNone; }
  absl::Status Observe(const AdvantageGroup& group);
  // InvalidArgument: the step has fewer than two trained tokens to whiten over.
  absl::Status FinishObserving();

  // Third: the advantages of one group. InvalidArgument: a row lacks an array that the estimator
  // needs, or has one of another length; else as the estimator's.
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
