#include "controller/algorithm/validation_metrics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

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

double HalfWidthOf95Percent(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const auto freedom = static_cast<double>(values.size() - 1);
  return 1.96 * MeanAndStd(values).std / std::sqrt(freedom);  // std has n already
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

namespace {

using Prompts = std::vector<const ValidationPrompt*>;
using Metrics = std::map<std::string, double>;

// Numbers the answers from 0; equal answers get the same number.
std::vector<int64_t> NumberAnswers(const std::vector<std::string>& predictions) {
  std::map<std::string, int64_t> numbers;
  std::vector<int64_t> answers;
  for (const std::string& prediction : predictions) {
    answers.push_back(numbers.emplace(prediction, std::ssize(numbers)).first->second);
  }
  return answers;
}

void Add(Metrics& sums, const std::string& name, const MeanStd& result) {
  sums[name + "/mean"] += result.mean;
  sums[name + "/std"] += result.std;
}

// Adds the metrics of one prompt to `sums`, by key and metric.
void AddPrompt(const ValidationPrompt& prompt,
               const std::set<std::string>& keys,
               bool majority,
               std::map<std::string, Metrics>& sums) {
  const int64_t samples = prompt.samples;
  for (const std::string& key : keys) {
    const MeanStd all = MeanAndStd(prompt.values.at(key));
    sums[key][fmt::format("mean@{}", samples)] += all.mean;
    if (samples > 1) sums[key][fmt::format("std@{}", samples)] += all.std;
  }
  const std::vector<int64_t> answers = NumberAnswers(prompt.predictions);
  for (const int64_t k : SubsetSizes(samples)) {
    const Resampler resampler(samples, k, (prompt.data_row << 13) | static_cast<uint64_t>(k));
    for (const std::string& key : keys) {
      const std::vector<double>& values = prompt.values.at(key);
      Add(sums[key], fmt::format("best@{}", k), resampler.Best(values));
      Add(sums[key], fmt::format("worst@{}", k), resampler.Worst(values));
      if (majority) Add(sums[key], fmt::format("maj@{}", k), resampler.Majority(values, answers));
      const int64_t right =
          std::count_if(values.begin(), values.end(), [](double value) { return value >= 1; });
      sums[key][fmt::format("pass@{}", k)] += PassAtK(samples, right, k);
    }
  }
}

std::string Section(bool core_key, const std::string& metric, int64_t samples) {
  constexpr const char* kCore[] = {"mean@", "best@", "maj@", "pass@"};
  const bool core = core_key && std::any_of(std::begin(kCore), std::end(kCore), [&](auto prefix) {
                      const std::string name = fmt::format("{}{}", prefix, samples);
                      return metric == name || metric.starts_with(name + "/");
                    });
  return core ? "val-core" : "val-aux";
}

void AddSource(const std::string& source, const Prompts& prompts, ValidationResult& result) {
  std::set<std::string> keys;
  for (const ValidationPrompt* prompt : prompts) {
    for (const auto& [key, values] : prompt->values) keys.insert(key);
  }
  std::erase_if(keys, [&](const std::string& key) {
    const bool complete = std::all_of(prompts.begin(), prompts.end(), [&](const auto* prompt) {
      const auto found = prompt->values.find(key);
      return found != prompt->values.end() && std::ssize(found->second) == prompt->samples;
    });
    if (!complete) result.incomplete.push_back(fmt::format("{}: {}", source, key));
    return !complete;
  });
  const bool majority = std::all_of(prompts.begin(), prompts.end(), [](const auto* prompt) {
    return std::ssize(prompt->predictions) == prompt->samples;
  });
  std::map<std::string, Metrics> sums;
  int64_t samples = 0;  // per prompt; the same for all prompts
  for (const ValidationPrompt* prompt : prompts) {
    AddPrompt(*prompt, keys, majority, sums);
    samples = std::max(samples, prompt->samples);
  }
  const std::string core = keys.contains("acc") ? "acc" : "reward";
  for (const auto& [key, metrics] : sums) {
    for (const auto& [metric, sum] : metrics) {
      const std::string section = Section(key == core, metric, samples);
      result.metrics[fmt::format("{}/{}/{}/{}", section, source, key, metric)] =
          sum / static_cast<double>(prompts.size());
    }
  }
}

}  // namespace

ValidationResult SummarizeValidation(const std::vector<ValidationPrompt>& prompts) {
  std::map<std::string, Prompts> by_source;
  for (const ValidationPrompt& prompt : prompts) by_source[prompt.data_source].push_back(&prompt);
  ValidationResult result;
  for (const auto& [source, of_source] : by_source) AddSource(source, of_source, result);
  return result;
}

}  // namespace tandem
