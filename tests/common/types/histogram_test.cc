#include "common/types/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

Histogram HistogramOf(const std::vector<double>& values) {
  Histogram histogram{.low = *std::min_element(values.begin(), values.end()),
                      .high = *std::max_element(values.begin(), values.end())};
  for (const double value : values) histogram.Add(value);
  return histogram;
}

// By going through all edges for each value.
std::vector<int64_t> BruteForce(const Histogram& histogram, const std::vector<double>& values) {
  std::vector<int64_t> counts(kHistogramBins);
  for (const double value : values) {
    for (size_t bin = 0; bin < kHistogramBins; ++bin) {
      const bool last = bin + 1 == kHistogramBins;
      const bool below = value < histogram.Edge(bin + 1) || (last && value == histogram.high);
      if (histogram.Edge(bin) <= value && below) ++counts[bin];
    }
  }
  return counts;
}

}  // namespace

TEST_CASE("A histogram counts each value in the bin between whose edges it lies", "[types]") {
  std::mt19937 dice(7);
  for (const double scale : {1.0, 1e-3, 37.0, 1e300}) {
    std::normal_distribution<double> normal(0.3, 1);
    std::vector<double> values;
    for (int i = 0; i < 2000; ++i) values.push_back(scale * normal(dice));
    Histogram histogram = HistogramOf(values);
    for (size_t bin = 0; bin <= kHistogramBins; ++bin) {
      const double edge = histogram.Edge(bin);  // rounding decides nothing at the edges
      for (const double value :
           {edge, std::nextafter(edge, histogram.low), std::nextafter(edge, histogram.high)}) {
        values.push_back(value);
        histogram.Add(value);
      }
    }
    REQUIRE(histogram.counts == BruteForce(histogram, values));
    REQUIRE(histogram.total() == static_cast<int64_t>(values.size()));
  }
}

TEST_CASE("Values on the edges are counted as numpy.histogram counts them", "[types]") {
  // numpy.histogram([0, 1, 2, 2.5, 32], bins=32)
  const Histogram histogram = HistogramOf({0, 1, 2, 2.5, 32});
  REQUIRE(histogram.counts[0] == 1);
  REQUIRE(histogram.counts[1] == 1);
  REQUIRE(histogram.counts[2] == 2);
  REQUIRE(histogram.counts[31] == 1);
}

TEST_CASE("A histogram of equal, of two and of the largest values is finite", "[types]") {
  const Histogram equal = HistogramOf({0.5, 0.5, 0.5});
  REQUIRE(equal.counts[0] == 3);
  REQUIRE(equal.total() == 3);
  const Histogram two = HistogramOf({0, 0, 1});
  REQUIRE(two.counts[0] == 2);
  REQUIRE(two.counts[31] == 1);
  constexpr double kMost = std::numeric_limits<double>::max();
  const Histogram all = HistogramOf({-kMost, 0, kMost});
  REQUIRE(all.counts[0] == 1);
  REQUIRE(all.counts[16] == 1);
  REQUIRE(all.counts[31] == 1);
  for (size_t bin = 0; bin <= kHistogramBins; ++bin) REQUIRE(std::isfinite(all.Edge(bin)));
}

}  // namespace tandem
