// How numbers spread: their counts in equal bins.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

inline constexpr size_t kHistogramBins = 32;

// As numpy.histogram(values, bins=32) counts: bin i has the values from Edge(i) to Edge(i + 1),
// which itself is in the next one; the last bin has `high`, too. Where all values are equal, `low`
// is `high`, and all of them are in the first bin.
struct Histogram {
  double low = 0;   // the smallest value
  double high = 0;  // the largest
  std::vector<int64_t> counts = std::vector<int64_t>(kHistogramBins);

  // Of bin `bin`; bins() is the edge behind the last one. Finite wherever low and high are.
  double Edge(size_t bin) const {
    if (bin == counts.size()) return high;
    const double share = static_cast<double>(bin) / static_cast<double>(counts.size());
    return low * (1 - share) + high * share;
  }

  // `value` must be between low and high.
  void Add(double value) {
    const auto above = [this](double v, size_t bin) { return Edge(bin) <= v; };
    size_t bin = 0;
    if (high > low) {
      const double share = (value / 2 - low / 2) / (high / 2 - low / 2);
      const double guess = share * static_cast<double>(counts.size());
      bin = std::min(static_cast<size_t>(std::max(guess, 0.0)), counts.size() - 1);
      // The division rounds: the edges decide.
      while (bin > 0 && !above(value, bin)) --bin;
      while (bin + 1 < counts.size() && above(value, bin + 1)) ++bin;
    }
    ++counts[bin];
  }

  int64_t total() const {
    int64_t sum = 0;
    for (const int64_t count : counts) sum += count;
    return sum;
  }
};

}  // namespace tandem
