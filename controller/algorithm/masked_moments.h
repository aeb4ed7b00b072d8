// Mean and variance over the trained tokens of a step, gathered one response at a time (verl's
// masked_whiten: (x - mean) / sqrt(var + 1e-8), var with n - 1).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <absl/status/statusor.h>

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

}  // namespace tandem
