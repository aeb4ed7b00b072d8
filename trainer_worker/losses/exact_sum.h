// A sum of floats without any rounding, so that neither the order nor the split over ranks shows: a
// float is a 24-bit number times a power of two, and is added in two pieces to bins that are 2^24
// apart. (The idea: Malcolm, "On accurate floating-point summation", CACM 14(11), 1971.)
#pragma once

#include <array>

namespace tandem {

class ExactSum {
 public:
  // Exact for up to 2^28 finite values, all ranks together.
  void Add(float value);

  // Integers: sums of them over ranks are exact, in any order.
  std::array<double, 14>& bins() { return bins_; }
  // The sum, rounded to a double in a fixed order: a function of the bins alone.
  double Value() const;

 private:
  std::array<double, 14> bins_{};
};

}  // namespace tandem
