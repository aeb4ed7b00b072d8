#include "controller/step/summary/histograms.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

constexpr int64_t kPromptTokens = 2;

// A step's samples in a store, and every number of them, as the trainers see them.
struct HistogramStep {
  HistogramStep() { REQUIRE(store->BeginStep(1).ok()); }

  // Log-probs of -t/2, of which the mask keeps those at even places, as the correction does.
  void Add(uint64_t id, int64_t tokens, double reward, bool masked) {
    Sample sample{.sample_id = id, .prompt_tokens = kPromptTokens};
    sample.tokens.assign(static_cast<size_t>(kPromptTokens + tokens), 5);
    sample.versions.assign(static_cast<size_t>(tokens), 3);
    std::vector<float> recomputed, mask, advantages;
    std::uniform_real_distribution<float> noise(-0.1f, 0.1f);
    for (int64_t t = 0; t < tokens; ++t) {
      const float log_prob = -0.5f * static_cast<float>(t) - 0.2f;
      sample.log_probs.push_back(log_prob);
      recomputed.push_back(log_prob + noise(dice));
      mask.push_back(masked && t % 2 == 1 ? 0.0f : 1.0f);
      advantages.push_back(static_cast<float>(reward) - noise(dice));
      if (mask.back() == 0) continue;
      numbers[kLogProbHistogram].push_back(log_prob);
      numbers[kAdvantageHistogram].push_back(advantages.back());
      numbers[kRatioHistogram].push_back(
          std::exp(static_cast<double>(recomputed.back()) - static_cast<double>(log_prob)));
    }
    REQUIRE(store->Put(sample, 3).ok());
    REQUIRE(store->PutArray(1, TokenArray::kRecomputed, id, recomputed).ok());
    REQUIRE(store->PutArray(1, TokenArray::kAdvantages, id, advantages).ok());
    if (masked) REQUIRE(store->PutArray(1, TokenArray::kMask, id, mask).ok());
    records.push_back({.sample_id = id, .reward = reward});
    numbers[kRewardHistogram].push_back(reward);
    numbers[kLengthHistogram].push_back(static_cast<double>(tokens));
  }

  testing::TempDir dir;
  std::mt19937 dice{3};
  const std::unique_ptr<SampleStore> store = SampleStore::Open(dir.path(), 0).value();
  std::vector<SampleRecord> records;
  std::map<std::string, std::vector<double>> numbers;  // that the histograms must count
};

}  // namespace

TEST_CASE("A step's histograms count what its samples and trained tokens have", "[step_metrics]") {
  HistogramStep step;
  for (uint64_t id = 1; id <= 40; ++id) {
    step.Add(id, static_cast<int64_t>(id * 7 % 23), static_cast<double>(id % 3) / 2, id % 4 == 0);
  }
  const auto histograms = StepHistograms(*step.store, step.store->Metas(), step.records).value();
  REQUIRE(histograms.size() == 5);
  for (const auto& [name, values] : step.numbers) {
    INFO(name);
    const Histogram& histogram = histograms.at(name);
    REQUIRE(histogram.low == *std::min_element(values.begin(), values.end()));
    REQUIRE(histogram.high == *std::max_element(values.begin(), values.end()));
    REQUIRE(histogram.total() == std::ssize(values));
    for (size_t bin = 0; bin < kHistogramBins; ++bin) {
      const auto inside = [&](double value) {
        const bool last = bin + 1 == kHistogramBins;
        return value >= histogram.Edge(bin) && (last || value < histogram.Edge(bin + 1));
      };
      REQUIRE(histogram.counts[bin] == std::count_if(values.begin(), values.end(), inside));
    }
  }
}

TEST_CASE("What a step does not know or cannot count has no histogram", "[step_metrics]") {
  HistogramStep step;
  Sample sample{.sample_id = 1, .tokens = {4, 5, 6}, .prompt_tokens = 2, .versions = {3}};
  REQUIRE(step.store->Put(sample, 3).ok());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto histograms =
      StepHistograms(*step.store, step.store->Metas(), {{.sample_id = 1, .reward = nan}}).value();
  REQUIRE(histograms.size() == 2);  // no log-probs, no finite reward
  REQUIRE(histograms.at(kLengthHistogram).total() == 1);
  REQUIRE(histograms.at(kAdvantageHistogram).total() == 1);
}

TEST_CASE("Histograms of samples whose file was cut short are an error", "[step_metrics]") {
  HistogramStep step;
  step.Add(1, 9, 1, false);
  for (const auto& entry : std::filesystem::directory_iterator(step.dir.path())) {
    std::filesystem::resize_file(entry.path(), 8);
  }
  REQUIRE(
      absl::IsDataLoss(StepHistograms(*step.store, step.store->Metas(), step.records).status()));
}

}  // namespace tandem
