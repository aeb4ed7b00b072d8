// Mean, spread and range of a series that goes by once.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tandem {

// B. P. Welford, Note on a method for calculating corrected sums of squares and products,
// Technometrics 4 (1962). In double: the order of the values decides over the last bits only.
struct Moments {
  int64_t count = 0;
  double mean = 0;
  double squares = 0;  // sum of (x - mean)^2
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();

  void Add(double x) {
    ++count;
    const double before = x - mean;
    mean += before / static_cast<double>(count);
    squares += before * (x - mean);
    min = std::min(min, x);
    max = std::max(max, x);
  }
  // With n - 1; 0 of fewer than two values.
  double StandardDeviation() const {
    return count > 1 ? std::sqrt(squares / static_cast<double>(count - 1)) : 0.0;
  }
};

}  // namespace tandem
