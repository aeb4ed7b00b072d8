#include <catch2/catch.hpp>

#include "controller/report/generation_text.h"
#include "controller/report/html_report.h"
#include "controller/store/run_store.h"

namespace tandem {
namespace {

StepRecord TailStep(double share, double split_2, double split_4) {
  StepRecord step;
  step.metrics = {{kTailShare, share},
                  {kGenerationSeconds, 20},
                  {std::string(kPredictedSaving) + "split_2", split_2},
                  {std::string(kPredictedSaving) + "split_4", split_4}};
  return step;
}

}  // namespace

TEST_CASE("TailText says what caps of a half and a quarter would have saved in the whole run",
          "[report][tail]") {
  REQUIRE(TailText({TailStep(0.3, 6, 9), TailStep(0.5, 7, 1)}, 101) ==
          "the tail of generation left 40 % of the slots empty; of 40.0 s of generation "
          "rollout.partial.max_tokens_per_round=51 would have saved 13.0 s (32 %), and 26 would "
          "have saved 10.0 s (25 %), as predicted from its lengths "
          "(docs/guides/partial_rollout.md: when it "
          "pays)");
  REQUIRE(TailText({TailStep(0.3, -1, 9)}, 101)
              .find("max_tokens_per_round=51 would have cost 1.00 s (5 %), and 26 would have saved "
                    "9.00 s (45 %)") != std::string::npos);
  REQUIRE(TailText({TailStep(0.3, 6, 9)}, 0)
              .find(" algorithm.partial_rollout_max_split=2 would have saved 6.00 s (30 %), and 4 "
                    "would") != std::string::npos);
}

TEST_CASE("TailText promises nothing where no cap would save time", "[report][tail]") {
  REQUIRE(TailText({TailStep(0.4, -2, -1), TailStep(0.4, 1, 0)}, 64) ==
          "the tail of generation left 40 % of the slots empty; no cap per round is predicted to "
          "save 5 % of generation");
  // Of 20 s: a second is worth telling, less is not.
  REQUIRE(TailText({TailStep(0.4, 0.99, -9)}, 64).find("no cap") != std::string::npos);
  REQUIRE(TailText({TailStep(0.4, 1.01, -9)}, 64).find("no cap") == std::string::npos);
}

TEST_CASE("TailText counts the generation of steps that predict something, and of no others",
          "[report][tail]") {
  StepRecord with_cap = TailStep(0.3, 0, 0);
  for (const char* split : {"split_2", "split_4"}) {
    with_cap.metrics.erase(std::string(kPredictedSaving) + split);
  }
  REQUIRE(TailText({TailStep(0.3, 6, 9), with_cap}, 64).find("of 20.0 s of generation") !=
          std::string::npos);
}

TEST_CASE("TailText says what rounds with a cap leave empty, without a prediction",
          "[report][tail]") {
  StepRecord step;
  step.metrics = {{kTailShare, 0.25}, {kGenerationSeconds, 20}};
  REQUIRE(TailText({step}, 64) == "the tail of generation left 25 % of the slots empty");
}

TEST_CASE("TailText is silent about a short tail and steps without one", "[report][tail]") {
  REQUIRE(TailText({TailStep(0.19, 6, 9)}, 64).empty());
  REQUIRE(TailText({}, 64).empty());
  REQUIRE(TailText({StepRecord{}}, 64).empty());
}

TEST_CASE("HtmlReport says what the tail cost", "[report][html]") {
  ReportInput input;
  input.info.max_response_tokens = 64;
  input.figures = {TailStep(0.4, 6, 5)};
  const std::string html = HtmlReport(input);
  REQUIRE(html.find("max_tokens_per_round=32 would have saved 6.00 s (30 %)") != std::string::npos);
}

}  // namespace tandem
