#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>

#include <catch2/catch.hpp>

#include "controller/algorithm/validation_metrics.h"

namespace tandem {
namespace {

const std::vector<double> kValues = {0.5, 0, 2, 1, 0, 0.25, 3, 1};
const std::vector<int64_t> kAnswers = {0, 1, 2, 0, 1, 0, 3, 2};

using Statistic = std::function<double(const std::vector<size_t>&)>;

// The exact expectation over draws with replacement: all sequences of `size` samples.
double Expectation(size_t samples, size_t size, const Statistic& statistic) {
  std::vector<size_t> draw(size, 0);
  double sum = 0, count = 0;
  while (true) {
    sum += statistic(draw);
    ++count;
    size_t i = 0;
    while (i < size && ++draw[i] == samples) draw[i++] = 0;
    if (i == size) return sum / count;
  }
}

// Word for word: the answer with most votes, the first one seen among equals, its first value.
double MajorityOf(const std::vector<size_t>& draw) {
  std::vector<int64_t> seen;
  std::map<int64_t, std::vector<double>> values;
  for (const size_t sample : draw) {
    if (values[kAnswers[sample]].empty()) seen.push_back(kAnswers[sample]);
    values[kAnswers[sample]].push_back(kValues[sample]);
  }
  int64_t winner = seen.front();
  for (const int64_t answer : seen) {
    if (values[answer].size() > values[winner].size()) winner = answer;
  }
  return values[winner].front();
}

double BestOf(const std::vector<size_t>& draw) {
  double best = -1e9;
  for (const size_t sample : draw) best = std::max(best, kValues[sample]);
  return best;
}

// Of one resampler, through `statistic`.
MeanStd ByHand(const Resampler& resampler, size_t size, const Statistic& statistic) {
  std::vector<double> results;
  for (size_t begin = 0; begin < resampler.draws().size(); begin += size) {
    const auto at = resampler.draws().begin() + static_cast<int64_t>(begin);
    results.push_back(statistic({at, at + static_cast<int64_t>(size)}));
  }
  return MeanAndStd(results);
}

}  // namespace

TEST_CASE("MeanAndStd divides by the count", "[validation]") {
  REQUIRE(MeanAndStd({1, 2, 3, 4}).mean == 2.5);
  REQUIRE(MeanAndStd({1, 2, 3, 4}).std == std::sqrt(1.25));
  REQUIRE(MeanAndStd({7}).std == 0);
  REQUIRE(MeanAndStd({}).mean == 0);
}

TEST_CASE("SubsetSizes are powers of two and the number of samples", "[validation]") {
  REQUIRE(SubsetSizes(1).empty());
  REQUIRE(SubsetSizes(2) == std::vector<int64_t>{2});
  REQUIRE(SubsetSizes(3) == std::vector<int64_t>{2, 3});
  REQUIRE(SubsetSizes(8) == std::vector<int64_t>{2, 4, 8});
  REQUIRE(SubsetSizes(9) == std::vector<int64_t>{2, 4, 8, 9});
}

TEST_CASE("PassAtK is the share of subsets that hold a right answer", "[validation]") {
  for (int64_t n = 1; n <= 9; ++n) {
    for (int64_t right = 0; right <= n; ++right) {
      for (int64_t k = 1; k <= n; ++k) {
        int64_t subsets = 0, passing = 0;
        for (uint32_t subset = 0; subset < (1u << n); ++subset) {
          if (std::popcount(subset) != k) continue;
          ++subsets;
          passing += (subset & ((1u << right) - 1)) != 0 ? 1 : 0;  // the first ones are right
        }
        INFO(n << " samples, " << right << " right, k " << k);
        REQUIRE(PassAtK(n, right, k) ==
                Approx(static_cast<double>(passing) / static_cast<double>(subsets)).margin(1e-12));
      }
    }
  }
  // C(4095, 4000) has a thousand digits; the product has none of them.
  REQUIRE(PassAtK(4096, 1, 2048) == Approx(0.5).margin(1e-12));
  REQUIRE(PassAtK(4096, 1, 4096) == 1);
}

TEST_CASE("Resampler draws the same samples on every machine", "[validation]") {
  // Worked out with a Philox of its own, in another language.
  const Resampler resampler(8, 4, (7u << 13) | 4);
  const std::vector<int32_t> first(resampler.draws().begin(), resampler.draws().begin() + 12);
  REQUIRE(first == std::vector<int32_t>{4, 1, 3, 7, 5, 7, 0, 4, 4, 7, 6, 5});
  REQUIRE(resampler.Best(kValues).mean == Approx(2.0555).epsilon(1e-14));
  // Neither multiple of four nor power of two.
  const Resampler odd(3, 3, 1);
  REQUIRE(odd.draws().size() == 3000);
  REQUIRE(*std::min_element(odd.draws().begin(), odd.draws().end()) == 0);
  REQUIRE(*std::max_element(odd.draws().begin(), odd.draws().end()) == 2);
  REQUIRE(Resampler(3, 3, 2).draws() != odd.draws());
}

TEST_CASE("Resampled best, worst and majority are those of each resample", "[validation]") {
  for (const size_t size : {2u, 3u, 8u}) {
    const Resampler resampler(8, static_cast<int64_t>(size), 11);
    const MeanStd best = resampler.Best(kValues), majority = resampler.Majority(kValues, kAnswers);
    REQUIRE(best.mean == ByHand(resampler, size, BestOf).mean);
    REQUIRE(best.std == ByHand(resampler, size, BestOf).std);
    REQUIRE(majority.mean == ByHand(resampler, size, MajorityOf).mean);
    REQUIRE(majority.std == ByHand(resampler, size, MajorityOf).std);
    std::vector<double> negative;
    for (const double value : kValues) negative.push_back(-value);
    REQUIRE(resampler.Worst(kValues).mean == -resampler.Best(negative).mean);
  }
}

TEST_CASE("Resampled means converge to their exact expectations", "[validation]") {
  constexpr int kStreams = 100;
  for (const size_t size : {2u, 4u}) {
    double best = 0, majority = 0, best_std = 0, majority_std = 0;
    for (uint64_t stream = 0; stream < kStreams; ++stream) {
      const Resampler resampler(8, static_cast<int64_t>(size), stream);
      best += resampler.Best(kValues).mean / kStreams;
      best_std += resampler.Best(kValues).std / kStreams;
      majority += resampler.Majority(kValues, kAnswers).mean / kStreams;
      majority_std += resampler.Majority(kValues, kAnswers).std / kStreams;
    }
    // Five standard errors; a draw without replacement or a tie that goes to the last answer is
    // further off.
    const double error = 5 / std::sqrt(kStreams * Resampler::kResamples);
    REQUIRE(std::abs(best - Expectation(8, size, BestOf)) < error * best_std);
    REQUIRE(std::abs(majority - Expectation(8, size, MajorityOf)) < error * majority_std);
  }
  // The closed form of the best of k: sum over sorted values of x_i ((i / n)^k - ((i - 1) / n)^k).
  std::vector<double> sorted = kValues;
  std::sort(sorted.begin(), sorted.end());
  double closed = 0;
  for (size_t i = 0; i < 8; ++i) {
    closed += sorted[i] * (std::pow((static_cast<double>(i) + 1) / 8, 4) -
                           std::pow(static_cast<double>(i) / 8, 4));
  }
  REQUIRE(closed == Approx(Expectation(8, 4, BestOf)).epsilon(1e-12));
}

}  // namespace tandem
