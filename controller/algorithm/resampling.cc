#include "controller/algorithm/resampling.h"

#include <algorithm>
#include <cmath>

#include "common/base/philox.h"

namespace tandem {

MeanStd MeanAndStd(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / count;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {.mean = mean, .std = std::sqrt(squares / count)};
}

std::vector<int64_t> SubsetSizes(int64_t samples) {
  std::vector<int64_t> sizes;
  for (int64_t size = 2; size < samples; size *= 2) sizes.push_back(size);
  if (samples > 1) sizes.push_back(samples);
  return sizes;
}

double PassAtK(int64_t samples, int64_t right, int64_t k) {
  if (samples - right < k) return 1;
  double all_wrong = 1;
  for (int64_t i = samples - right + 1; i <= samples; ++i) {
    all_wrong *= 1 - static_cast<double>(k) / static_cast<double>(i);
  }
  return 1 - all_wrong;
}

Resampler::Resampler(int64_t samples, int64_t size, uint64_t stream)
    : size_(static_cast<size_t>(size)), draws_(static_cast<size_t>(kResamples * size)) {
  for (size_t i = 0; i < draws_.size(); i += 4) {
    const auto words = RandomWords(kSeed, stream, i / 4);
    for (size_t w = 0; w < std::min<size_t>(4, draws_.size() - i); ++w) {
      draws_[i + w] =
          static_cast<int32_t>((uint64_t{words[w]} * static_cast<uint64_t>(samples)) >> 32);
    }
  }
}

MeanStd Resampler::Best(const std::vector<double>& values) const {
  std::vector<double> results;
  for (size_t begin = 0; begin < draws_.size(); begin += size_) {
    double best = values[static_cast<size_t>(draws_[begin])];
    for (size_t i = begin + 1; i < begin + size_; ++i) {
      best = std::max(best, values[static_cast<size_t>(draws_[i])]);
    }
    results.push_back(best);
  }
  return MeanAndStd(results);
}

MeanStd Resampler::Worst(const std::vector<double>& values) const {
  std::vector<double> results;
  for (size_t begin = 0; begin < draws_.size(); begin += size_) {
    double worst = values[static_cast<size_t>(draws_[begin])];
    for (size_t i = begin + 1; i < begin + size_; ++i) {
      worst = std::min(worst, values[static_cast<size_t>(draws_[i])]);
    }
    results.push_back(worst);
  }
  return MeanAndStd(results);
}

MeanStd Resampler::Majority(const std::vector<double>& values,
                            const std::vector<int64_t>& answers) const {
  std::vector<double> results;
  std::vector<int64_t> votes(values.size());  // by answer
  for (size_t begin = 0; begin < draws_.size(); begin += size_) {
    std::fill(votes.begin(), votes.end(), 0);
    for (size_t i = begin; i < begin + size_; ++i) {
      ++votes[static_cast<size_t>(answers[static_cast<size_t>(draws_[i])])];
    }
    auto winner = static_cast<size_t>(draws_[begin]);
    for (size_t i = begin + 1; i < begin + size_; ++i) {
      const auto sample = static_cast<size_t>(draws_[i]);
      if (votes[static_cast<size_t>(answers[sample])] >
          votes[static_cast<size_t>(answers[winner])]) {
        winner = sample;
      }
    }
    results.push_back(values[winner]);
  }
  return MeanAndStd(results);
}

}  // namespace tandem
