#include "controller/report/run_report.h"

#include <cmath>

#include <catch2/catch.hpp>

#include "controller/store/run_store.h"
#include "tests/support/text.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)
using tandem::testing::Has;

TEST_CASE("HtmlReport is one page without outside files and escapes texts", "[report][html]") {
  ReportInput input;
  input.info.run_id = "r<1>";
  input.info.config_yaml = "a: <b>";
  input.summary = RunSummary{.error = "worker <gone>"};
  StepRecord step;
  step.step = 1;
  step.metrics[kRewardMean] = 0.5;
  step.phases = {{"train", 2.0, 1 << 20}};
  input.figures = {step};
  SampleRecord sample;
  sample.response = "<script>alert(1)</script>";
  input.last_samples = {sample};
  const std::string html = HtmlReport(input);
  REQUIRE(Has(html, "<svg"));
  REQUIRE_FALSE(Has(html, "<script"));
  REQUIRE_FALSE(Has(html, "src="));
  REQUIRE_FALSE(Has(html, "http"));
  REQUIRE(Has(html, "r&lt;1&gt;"));
  REQUIRE(Has(html, "worker &lt;gone&gt;"));
}

TEST_CASE("HtmlReport compares the first validation with the last", "[report][html]") {
  ReportInput input;
  input.figures.evaluations.resize(2);
  input.figures.evaluations[1].step = 7;
  input.figures.evaluations[0].metrics = {{"val-core/a<b/reward/mean@2", 0.25}};
  input.figures.evaluations[1].metrics = {{"val-core/a<b/reward/mean@2", 0.5},
                                          {"val-core/a<b/reward/best@2/mean", 0.75}};
  const std::string html = HtmlReport(input);
  REQUIRE(Has(html, "<tr><td>a&lt;b reward</td><td>mean@2</td><td>0.25</td><td>0.5</td></tr>"));
  REQUIRE(Has(html, "<tr><td>a&lt;b reward</td><td>best@2</td><td>-</td><td>0.75</td></tr>"));
}

TEST_CASE("SvgLines copes with no points, one point and NaN", "[report][svg]") {
  REQUIRE(Has(SvgLines("t", {{"s", {}}}), "<svg"));
  REQUIRE_FALSE(Has(SvgLines("t", {{"s", {{1, 2}}}}), "nan"));
  REQUIRE_FALSE(Has(SvgLines("t", {{"s", {{1, std::nan("")}, {2, 3}}}}), "nan"));
}

TEST_CASE("HtmlReport of records alone does not say how the run ended", "[report][html]") {
  ReportInput input;
  input.info.total_steps = 9;
  input.figures = {StepRecord{.step = 4}};
  REQUIRE(Has(HtmlReport(input), "4 of 9 steps are recorded; how the run ended is not in"));
}

TEST_CASE("HtmlReport names the steps that were undone", "[report][html]") {
  ReportInput input;
  REQUIRE_FALSE(Has(HtmlReport(input), "undone"));
  for (int64_t step = 1; step <= 40; ++step) {
    input.figures.AddUndone({.step = step, .undone_by = 7});
  }
  REQUIRE(Has(HtmlReport(input),
              "40 steps were undone by recoveries (tandemctl steps --undone): step 1 by "));
  REQUIRE(Has(HtmlReport(input), "and 8 more; those after step 0 were not made again"));
  for (int64_t step = 1; step <= 40; ++step) input.figures.Add(StepRecord{.step = step});
  REQUIRE(Has(HtmlReport(input),
              "40 steps were undone by recoveries and made again (tandemctl steps --undone): step "
              "1 by generation 7, 2 by generation 7"));
  REQUIRE(Has(HtmlReport(input), "32 by generation 7 and 8 more"));
}
