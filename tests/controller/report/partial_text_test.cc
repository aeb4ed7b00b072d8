#include <catch2/catch.hpp>

#include "controller/report/generation_text.h"
#include "controller/report/html_report.h"
#include "controller/store/run_store.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;

StepRecord PartialStep(int64_t step, std::map<std::string, double> metrics) {
  metrics.insert({{kRounds, 1},
                  {kCarriedGroups, 0},
                  {kCutSamples, 0},
                  {kPrefilledAgain, 0},
                  {kPartialRatio, 0},
                  {kPartialSpan, 0},
                  {kStaleTokens, 0},
                  {kStaleTokensShare, 0},
                  {kStalenessMean, 0},
                  {kGeneratedTokens, 100}});
  return {.step = step, .metrics = std::move(metrics)};
}

StepRecord StepWithout(double tail) { return {.step = 1, .metrics = {{kTailShare, tail}}}; }

// Two steps with partial rollout.
std::vector<StepRecord> TwoSteps() {
  return {PartialStep(2, {{kRounds, 2},
                          {kCarriedGroups, 5},
                          {kCarriedSamples, 17},
                          {kCutSamples, 20},
                          {kTailShare, 0.5}}),
          PartialStep(3, {{kRounds, 1},
                          {kOverlapRounds, 1},
                          {kOverlapTokens, 30},
                          {kCarriedGroups, 1},
                          {kCarriedSamples, 1},
                          {kCutSamples, 1},
                          {kPrefilledAgain, 1234},
                          {kPartialSamples, 2},
                          {kPartialRatio, 0.0625},
                          {kPartialSpan, 3},
                          {kStaleTokens, 40},
                          {kStaleTokensShare, 0.5},
                          {kStalenessMean, 1.5},
                          {kTailShare, 0.25}})};
}

}  // namespace

TEST_CASE("PartialStepText says what a step did of partial rollout", "[report][partial]") {
  const std::vector<StepRecord> steps = TwoSteps();
  REQUIRE(PartialStepText(steps[0]) == "2 rounds, 5 groups carried (17 samples)");
  REQUIRE(PartialStepText(steps[1]) ==
          "1 round + 1 during training, 1 group carried (1 sample), 6.25 % of the samples of "
          "several versions (span 3), 1234 tokens prefilled again");
  REQUIRE(PartialStepText(PartialStep(1, {{kRounds, 0}})) == "0 rounds");
  REQUIRE(PartialStepText(PartialStep(1, {{kRounds, 1}, {kWholeGroupsLeft, 2}})) ==
          "1 round, 2 groups left complete");
  REQUIRE(PartialStepText(StepWithout(0.5)).empty());
}

TEST_CASE("PartialRows are the steps that had partial rollout, with gaps where a number is missing",
          "[report][partial]") {
  REQUIRE(PartialRows({StepWithout(0.5)}).empty());
  std::vector<StepRecord> steps = TwoSteps();
  steps.insert(steps.begin(), StepWithout(0.5));
  const auto rows = PartialRows(steps);
  REQUIRE(rows.size() == 3);
  for (const auto& row : rows) REQUIRE(row.size() == rows[0].size());
  REQUIRE(rows[1] == std::vector<std::string>{"2", "2", "-", "5", "17", "-", "0 %", "0", "0 %",
                                              "20", "0", "50 %"});
  REQUIRE(rows[2] == std::vector<std::string>{"3", "1", "1", "1", "1", "-", "6.25 %", "3", "50 %",
                                              "1", "1234", "25 %"});
}

TEST_CASE("PartialText adds the steps up, and weighs staleness by tokens", "[report][partial]") {
  std::vector<StepRecord> steps = TwoSteps();
  steps.push_back(
      PartialStep(4, {{kStaleTokens, 120}, {kStaleTokensShare, 0.25}, {kStalenessMean, 0.5}}));
  REQUIRE(PartialText(steps) ==
          "partial rollout: 4 rounds + 1 during training in 3 steps, 21 samples interrupted, "
          "1234 tokens prefilled again for 330 generated; 0 groups carried and 0 complete in the "
          "rollout buffer at the end; the tail of generation left 37.5 % of the slots empty\n"
          "2.08 % of the samples have tokens of several versions (span up to 3); 25 % of a step's "
          "trained tokens are of older weights, 0.75 versions old in the mean");
}

TEST_CASE("PartialText compares the tail with that of the steps without partial rollout",
          "[report][partial]") {
  std::vector<StepRecord> steps = TwoSteps();
  steps.insert(steps.begin(), {StepWithout(0.75), StepWithout(0.65)});
  REQUIRE(Has(PartialText(steps),
              "; the tail of generation left 37.5 % of the slots empty, and 70 % in the steps "
              "without it\n"));
  REQUIRE(Has(PartialText(steps), " in 2 steps, "));
  REQUIRE(PartialText({StepWithout(0.75)}).empty());
  // Without a round there is no tail, and without an old token no age.
  const std::string none = PartialText({PartialStep(1, {{kRounds, 0}})});
  REQUIRE_FALSE(Has(none, "tail"));
  REQUIRE(none.ends_with("0 % of a step's trained tokens are of older weights"));
}

TEST_CASE("HtmlReport shows partial rollout where there was some, in place of a prediction",
          "[report][html][partial]") {
  ReportInput input;
  input.info.max_response_tokens = 64;
  input.figures = {StepWithout(0.5)};
  REQUIRE(Has(HtmlReport(input), "the tail of generation left 50 % of the slots empty</p>"));
  REQUIRE_FALSE(Has(HtmlReport(input), "<h2>Partial rollout"));
  input.figures = TwoSteps();
  const std::string html = HtmlReport(input);
  REQUIRE(Has(html, "<h2>Partial rollout</h2><p>partial rollout: 3 rounds + 1 during"));
  REQUIRE(Has(html, "tokens of older weights"));
  REQUIRE(Has(html, "tokens prefilled again"));
}

}  // namespace tandem
