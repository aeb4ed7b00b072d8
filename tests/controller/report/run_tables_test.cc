#include "controller/report/run_tables.h"

#include <catch2/catch.hpp>

#include "controller/store/run_store.h"

namespace tandem {
namespace {

EvaluationRecord Evaluation(int64_t step, double mean, double interval) {
  EvaluationRecord record;
  record.step = step;
  record.prompts = 40;
  record.metrics = {{kValRewardMean, mean}, {kValRewardInterval, interval}};
  return record;
}

std::string Text(double before, double after, double interval, double expected = 0) {
  return EvaluationText({Evaluation(0, before, interval), Evaluation(50, after, interval)},
                        expected);
}

}  // namespace

TEST_CASE("EvaluationText tells a rise with its interval", "[report]") {
  REQUIRE(Text(0.1, 0.6, 0.03) ==
          "held-out reward: 0.1 ± 0.03 before (step 0) -> 0.6 ± 0.03 after step 50: "
          "rose by 0.5 ± 0.0424 (95 %)\n");
}

TEST_CASE("EvaluationText says plainly when there is no rise", "[report]") {
  REQUIRE(Text(0.1, 0.11, 0.03).find("did not rise: +0.01 ± 0.0424 (95 %), within its interval") !=
          std::string::npos);
  REQUIRE(Text(0.11, 0.1, 0.03).find("did not rise: -0.01 ± 0.0424 (95 %), within its interval") !=
          std::string::npos);
  REQUIRE(Text(0.6, 0.1, 0.03).find("fell by 0.5 ± 0.0424 (95 %)\n") != std::string::npos);
}

TEST_CASE("ResentText counts the rollouts that lost their weights, by step", "[report]") {
  std::vector<StepRecord> steps(3);
  for (size_t i = 0; i < steps.size(); ++i) steps[i].step = static_cast<int64_t>(i) + 1;
  REQUIRE(ResentText(steps).empty());
  steps[1].metrics[kResentWeights] = 1;
  REQUIRE(ResentText(steps) ==
          "weights were sent again to 1 rollout that had lost them: 1 in step 2");
  steps[2].metrics[kResentWeights] = 2;
  REQUIRE(ResentText(steps) ==
          "weights were sent again to 3 rollouts that had lost them: 1 in step 2, 2 in step 3");
}

TEST_CASE("EvaluationText says plainly when a rise is less than expected", "[report]") {
  REQUIRE(
      Text(0.1, 0.4, 0.03, 0.4).find("rose by 0.3 ± 0.0424 (95 %), less than the 0.4 expected\n") !=
      std::string::npos);
  REQUIRE(Text(0.1, 0.11, 0.03, 0.4).find("within its interval, less than the 0.4 expected") !=
          std::string::npos);
  REQUIRE(Text(0.1, 0.6, 0.03, 0.4).find("expected") == std::string::npos);
  REQUIRE(EvaluationText({Evaluation(50, 0.5, 0.1)}, 0.4)
              .find("a rise takes two validations to tell") != std::string::npos);
  REQUIRE(EvaluationText({}, 0.4).empty());
}

TEST_CASE("CoreMetricLines show the val-core numbers of each data source", "[report]") {
  EvaluationRecord record = Evaluation(3, 0.5, 0.1);
  record.metrics["val-core/openai/gsm8k/reward/mean@8"] = 0.25;
  REQUIRE(CoreMetricLines(record).empty());  // it is the mean of everything
  record.metrics["val-core/openai/gsm8k/reward/best@8/mean"] = 0.75;
  record.metrics["val-core/openai/gsm8k/reward/best@8/std"] = 0.125;
  record.metrics["val-core/math/acc/pass@8"] = 1;
  record.metrics["val-aux/openai/gsm8k/reward/pass@2"] = 0.5;
  REQUIRE(CoreMetricLines(record) ==
          std::vector<std::string>{"math acc: pass@8 1",
                                   "openai/gsm8k reward: best@8 0.75  mean@8 0.25"});
}

}  // namespace tandem
