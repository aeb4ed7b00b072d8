#include "controller/report/step_lines.h"

#include <limits>

#include <catch2/catch.hpp>

#include "tests/controller/report/shown_step.h"
#include "tests/support/text.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

using tandem::testing::Has;
using tandem::testing::ShownStep;
using tandem::testing::ShownSurroundings;

TEST_CASE("The line of a step has its numbers in a fixed order", "[report][console]") {
  REQUIRE(StepLine(ShownStep(), ShownSurroundings()) ==
          "step 25/50  v25  reward 0.531 ±0.12  loss -0.0143  entropy 0.412  kl 2.1e-04  clip 0.3 "
          "%  grad 0.87  3.21 s  ETA 1m20s");
}

TEST_CASE("The further lines say groups, phases, memory, log-probs and weights",
          "[report][console]") {
  const std::vector<std::string> lines = FurtherStepLines(ShownStep(), ShownSurroundings());
  REQUIRE(lines ==
          std::vector<std::string>{
              "  groups 8: 5 mixed, 2 all right, 1 all wrong   length 11.8 (p50 11, p99 29, cut 0 "
              "%)   64 samples, 756 tokens",
              "  verify 27 ms  generate 1.42 s 44 %  score 8 ms  sleep 31 ms  probe 64 ms  train "
              "1.21 s 38 %  optimize 220 ms  sync 180 ms  wake 41 ms  record 9 ms",
              "  peak 1.84 GiB of 11.9 GiB in train, planned 1.86 GiB   gen 532 tok/s  train 1603 "
              "tok/s   KV 38 %  waiting 0  tail 12 %",
              "  756 of 756 token log-probs identical, |Δ| max 0, ratio 1 exactly   weights 268 "
              "MiB in 180 ms, digest 9f3c41d0"});
}

TEST_CASE("The samples of a step are one line each", "[report][console]") {
  const std::vector<std::string> lines = SampleLines(ShownSurroundings().details, kSampleTextWidth);
  REQUIRE(lines == std::vector<std::string>{
                       R"(  + reward 1  A +0.725   7 tok  "What is 7 + 13? Answer wit…" -> )"
                       R"("The answer is 20.")",
                       R"(  - reward 0  A -1.21   14 tok  "What is 7 + 13? Answer wit…" -> )"
                       R"("7 + 13 = 21. The answer is…")"});
  REQUIRE(
      Has(SampleLines(ShownSurroundings().details, 0)[1], "with a number.\" -> \"7 + 13 = 21. "));
}

TEST_CASE("What a step lacks is left out, not shown as 0", "[report][console]") {
  StepSurroundings around;
  around.total_steps = 3;
  around.time_left = "-";
  REQUIRE(StepLine({.step = 1, .version = 1}, around) == "step 1/3  v1  ETA -");
  REQUIRE(FurtherStepLines({.step = 1}, around).empty());
  REQUIRE(SampleLines(around.details, 0).empty());
  const StepRecord one{.step = 1, .metrics = {{kRewardMean, 0.5}, {kResponseLengthMean, 4}}};
  REQUIRE(Has(StepLine(one, around), "  reward 0.5  ETA"));
  REQUIRE(FurtherStepLines(one, around) == std::vector<std::string>{"  length 4.0"});
}

TEST_CASE("The KL to the reference policy stands beside that of the policy", "[report][console]") {
  StepRecord step = ShownStep();
  step.metrics[kRewardKl] = 0.0012;
  REQUIRE(Has(StepLine(step, ShownSurroundings()), "  kl 2.1e-04  ref kl 1.2e-03  clip"));
  step.metrics[kKlLoss] = 0;
  REQUIRE(Has(StepLine(step, ShownSurroundings()), "  ref kl 0  "));
}

TEST_CASE("A number that is not finite is shown as it is", "[report][console]") {
  StepRecord step = ShownStep();
  step.metrics[kGradNorm] = std::numeric_limits<double>::infinity();
  step.metrics[kLoss] = std::numeric_limits<double>::quiet_NaN();
  const std::string line = StepLine(step, ShownSurroundings());
  REQUIRE(Has(line, "loss nan"));
  REQUIRE(Has(line, "grad inf"));
}

TEST_CASE("Batches that filtered groups needed, and ratios that differ, are said",
          "[report][console]") {
  StepRecord step = ShownStep();
  step.metrics.insert({{kGenerationBatches, 3}});
  step.metrics[kFirstRatioMax] = 1.25;
  const std::vector<std::string> lines = FurtherStepLines(step, ShownSurroundings());
  REQUIRE(Has(lines[0], "1 all wrong (filled by 3 batches)   length"));
  REQUIRE(Has(lines[3], ", ratio 1 to 1.25   weights"));
}

TEST_CASE("Text of a sample cannot steer the terminal", "[report][console]") {
  StepDetails details;
  details.samples = {{.prompt = "a\x1b[2J\n\u202eb", .response = "\xff\u0085\u200b", .reward = 1}};
  REQUIRE(SampleLines(details, 0) ==
          std::vector<std::string>{
              R"(  = reward 1  A +0  0 tok  "a\x1b[2J\n\u202eb" -> "\xff\u0085\u200b")"});
  details.samples[0].texts_kept = false;
  REQUIRE(Has(SampleLines(details, 0)[0], "tok  - -> -"));
}

TEST_CASE("The table of phases has the step and the run", "[report][console]") {
  const StepRecord step{.step = 2, .phases = {{"generate", 3, 2 << 20}, {"train", 1, 4 << 20}}};
  REQUIRE(StepPhaseTable(step, {{"generate", 5}, {"train", 2}, {"save", 1}}) ==
          "  phase     seconds    share  so far    share  peak memory     run    share\n"
          "  generate   3.00 s   75.0 %  3.00 s   75.0 %        2 MiB  5.00 s   62.5 %\n"
          "  train      1.00 s   25.0 %  4.00 s  100.0 %        4 MiB  2.00 s   25.0 %\n"
          "  save            -        -       -        -            -  1.00 s   12.5 %\n"
          "  all        4.00 s  100.0 %  4.00 s  100.0 %        4 MiB  8.00 s  100.0 %\n");
}
