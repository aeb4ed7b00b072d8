// A sum of floats without rounding, so that its bits do not depend on the order or on the split
// over ranks: a float is a 24-bit integer times a power of two, and is added in two parts to bins
// that are 2^24 apart. (The idea: Malcolm, "On accurate floating-point summation", CACM 14(11),
// 1971.)
#pragma once

#include <array>

namespace tandem {

class ExactSum {
 public:
  // Exact for up to 2^28 finite values over all ranks.
  void Add(float value);

  // The bins hold integers, so sums of them over ranks are exact in any order.
  std::array<double, 14>& bins() { return bins_; }
  // The sum, rounded to a double in a fixed order, so that it depends on the bins alone.
  double Value() const;

 private:
  std::array<double, 14> bins_{};
};

}  // namespace tandem
