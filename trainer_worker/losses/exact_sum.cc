#include "trainer_worker/losses/exact_sum.h"

#include <cmath>
#include <cstdint>

namespace tandem {
namespace {

constexpr int kBinBits = 24;
// Below the lowest bit of any float after frexp, which is 2^-172 for the smallest subnormal.
constexpr int kLowest = -192;

}  // namespace

void ExactSum::Add(float value) {
  int exponent = 0;
  const float fraction = std::frexp(std::fabs(value), &exponent);
  const auto digits = static_cast<uint64_t>(std::ldexp(fraction, kBinBits));
  if (digits == 0) return;
  const int position = exponent - kBinBits - kLowest;
  const uint64_t shifted = digits << (position % kBinBits);
  const auto bin = static_cast<size_t>(position / kBinBits);
  const double sign = std::signbit(value) ? -1 : 1;
  bins_[bin] += sign * static_cast<double>(shifted & ((uint64_t{1} << kBinBits) - 1));
  bins_[bin + 1] += sign * static_cast<double>(shifted >> kBinBits);
}

double ExactSum::Value() const {
  double sum = 0;
  for (int bin = static_cast<int>(bins_.size()) - 1; bin >= 0; --bin) {
    sum += std::ldexp(bins_[static_cast<size_t>(bin)], bin * kBinBits + kLowest);
  }
  return sum;
}

}  // namespace tandem
