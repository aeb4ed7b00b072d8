#include "controller/algorithm/validation_metrics.h"

#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

ValidationPrompt MakePrompt(const std::string& source,
                            uint64_t row,
                            const std::vector<double>& rewards) {
  return {.data_source = source,
          .data_row = row,
          .samples = static_cast<int64_t>(rewards.size()),
          .values = {{"reward", rewards}}};
}

}  // namespace

TEST_CASE("The 95 % interval of a mean has the deviation with n - 1", "[validation]") {
  REQUIRE(HalfWidthOf95Percent({1, 2, 3, 4}) == Approx(1.96 * std::sqrt(5.0 / 3) / 2));
  REQUIRE(HalfWidthOf95Percent({7}) == 0);
  REQUIRE(HalfWidthOf95Percent({}) == 0);
}

TEST_CASE("One sample per prompt has a mean alone", "[validation]") {
  const auto result = SummarizeValidation(
      {MakePrompt("a", 0, {1}), MakePrompt("a", 1, {0.5}), MakePrompt("b", 2, {0})});
  REQUIRE(result.metrics == std::map<std::string, double>{{"val-core/a/reward/mean@1", 0.75},
                                                          {"val-core/b/reward/mean@1", 0}});
  REQUIRE(result.incomplete.empty());
  REQUIRE(SummarizeValidation({}).metrics.empty());
}

TEST_CASE("Validation metrics are means over prompts, under verl's names", "[validation]") {
  std::vector<ValidationPrompt> prompts = {MakePrompt("a", 3, {1, 0, 0, 0}),
                                           MakePrompt("a", 5, {1, 1, 0, 1})};
  prompts[0].predictions = {"4", "5", "5", "5"};
  prompts[1].predictions = {"4", "4", "5", "4"};
  const auto metrics = SummarizeValidation(prompts).metrics;
  REQUIRE(metrics.at("val-core/a/reward/mean@4") == 0.5);
  REQUIRE(metrics.at("val-aux/a/reward/std@4") == Approx(std::sqrt(3.0) / 4));
  const auto best = [&](size_t p, int64_t k, uint64_t row) {
    return Resampler(4, k, (row << 13) | static_cast<uint64_t>(k))
        .Best(prompts[p].values.at("reward"));
  };
  REQUIRE(metrics.at("val-core/a/reward/best@4/mean") ==
          (best(0, 4, 3).mean + best(1, 4, 5).mean) / 2);
  REQUIRE(metrics.at("val-core/a/reward/best@4/std") ==
          (best(0, 4, 3).std + best(1, 4, 5).std) / 2);
  REQUIRE(metrics.at("val-aux/a/reward/best@2/mean") ==
          (best(0, 2, 3).mean + best(1, 2, 5).mean) / 2);
  REQUIRE(metrics.at("val-aux/a/reward/worst@4/mean") < 0.2);
  // The vote is mostly wrong on the first prompt and mostly right on the second.
  REQUIRE(metrics.at("val-core/a/reward/maj@4/mean") == Approx(0.5).margin(0.1));
  REQUIRE(metrics.contains("val-aux/a/reward/maj@2/std"));
  // Two of four: 1 - C(3, 2) / C(4, 2) = 1/2 and 1; four of four: 1 and 1.
  REQUIRE(metrics.at("val-aux/a/reward/pass@2") == Approx(0.75));
  REQUIRE(metrics.at("val-core/a/reward/pass@4") == 1);
  REQUIRE(metrics.size() == 2 + 2 * (6 + 1));
}

TEST_CASE("acc is the core key where a source has it", "[validation]") {
  std::vector<ValidationPrompt> prompts = {MakePrompt("a", 0, {1.2, 0.2}),
                                           MakePrompt("b", 1, {1.2, 0.2})};
  prompts[0].values["acc"] = {1, 0};
  const auto metrics = SummarizeValidation(prompts).metrics;
  REQUIRE(metrics.at("val-core/a/acc/mean@2") == 0.5);
  REQUIRE(metrics.at("val-aux/a/reward/mean@2") == Approx(0.7));
  REQUIRE(metrics.at("val-core/b/reward/mean@2") == Approx(0.7));
  // No predictions: nobody can vote.
  REQUIRE(std::none_of(metrics.begin(), metrics.end(), [](const auto& metric) {
    return metric.first.find("maj@") != std::string::npos;
  }));
}

TEST_CASE("A key that some samples lack is named and has no metrics", "[validation]") {
  std::vector<ValidationPrompt> prompts = {MakePrompt("a", 0, {1, 0}), MakePrompt("a", 1, {1, 0}),
                                           MakePrompt("b", 2, {1, 1})};
  prompts[0].values["acc"] = {1, 0};
  prompts[1].values["acc"] = {1};
  prompts[2].values["acc"] = {1, 1};
  prompts[0].predictions = {"x", "y"};
  prompts[1].predictions = {"x"};
  const ValidationResult result = SummarizeValidation(prompts);
  REQUIRE(result.incomplete == std::vector<std::string>{"a: acc"});
  REQUIRE_FALSE(result.metrics.contains("val-core/a/acc/mean@2"));
  REQUIRE_FALSE(result.metrics.contains("val-core/a/reward/maj@2/mean"));
  REQUIRE(result.metrics.at("val-core/a/reward/mean@2") == 0.5);
  REQUIRE(result.metrics.at("val-core/b/acc/mean@2") == 1);
}

TEST_CASE("A prompt's resamples do not depend on the others", "[validation]") {
  const ValidationPrompt one = MakePrompt("a", 3, {1, 0, 0, 0.5});
  ValidationPrompt other = MakePrompt("b", 4, {1, 0, 0, 0.5});
  const auto alone = SummarizeValidation({one}).metrics;
  const auto both = SummarizeValidation({other, one}).metrics;
  for (const auto& [name, value] : alone) REQUIRE(both.at(name) == value);
  // Equal values, other rows: other draws.
  REQUIRE(both.at("val-core/a/reward/best@4/mean") != both.at("val-core/b/reward/best@4/mean"));
}

}  // namespace tandem
