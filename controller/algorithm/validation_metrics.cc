#include "controller/algorithm/validation_metrics.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "controller/algorithm/resampling.h"

namespace tandem {
namespace {

using Prompts = std::vector<const ValidationPrompt*>;
using Metrics = std::map<std::string, double>;

// The same number for the same answer, counted from 0.
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
  int64_t samples = 0;  // the most of a prompt; all have as many
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
