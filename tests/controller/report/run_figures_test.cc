#include "controller/report/run_figures.h"

#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>

#include "controller/report/run_tables.h"

namespace tandem {
namespace {

constexpr auto kMost = static_cast<int64_t>(ThinnedCurve::kMostBuckets);

ThinnedCurve CurveOf(int64_t points, int64_t peak, int64_t dip) {
  ThinnedCurve curve;
  for (int64_t x = 0; x < points; ++x) {
    curve.Add({static_cast<double>(x), x == peak ? 9.0 : x == dip ? -9.0 : 0.0});
  }
  return curve;
}

bool HasPoint(const std::vector<PlotPoint>& points, double x, double y) {
  return std::any_of(points.begin(), points.end(),
                     [&](const PlotPoint& point) { return point.x == x && point.y == y; });
}

}  // namespace

TEST_CASE("A curve keeps every point as long as there are few, and skips NaN", "[report]") {
  ThinnedCurve curve;
  REQUIRE(curve.Points().empty());
  for (int64_t x = 0; x < kMost; ++x) curve.Add({static_cast<double>(x), std::sin(x)});
  curve.Add({1e6, std::nan("")});
  const std::vector<PlotPoint> points = curve.Points();
  REQUIRE(std::ssize(points) == kMost);
  for (int64_t x = 0; x < kMost; ++x) {
    REQUIRE(points[static_cast<size_t>(x)].x == static_cast<double>(x));
    REQUIRE(points[static_cast<size_t>(x)].y == std::sin(x));
  }
}

TEST_CASE("A curve of many points is thinned, without losing a peak or its order", "[report]") {
  for (const int64_t count : {kMost + 1, 3 * kMost + 7, int64_t{100'000}}) {
    for (const int64_t peak : {int64_t{0}, count / 3, count - 1}) {
      const int64_t dip = count / 3 + 1;
      const std::vector<PlotPoint> points = CurveOf(count, peak, dip).Points();
      INFO(count << " points, peak at " << peak);
      REQUIRE(std::ssize(points) <= 2 * kMost);
      REQUIRE(std::ssize(points) >= kMost / 2);
      REQUIRE(HasPoint(points, static_cast<double>(peak), 9));
      REQUIRE(HasPoint(points, static_cast<double>(dip), -9));
      REQUIRE(std::is_sorted(points.begin(), points.end(),
                             [](const auto& a, const auto& b) { return a.x < b.x; }));
    }
  }
}

TEST_CASE("Figures of very many steps name some of them, and count all", "[report]") {
  RunFigures figures;
  for (int64_t step = 1; step <= 1000; ++step) {
    figures.Add(StepRecord{.step = step,
                           .metrics = {{kRewardMean, step == 500 ? 2.0 : 0.5},
                                       {kResentWeights, 1},
                                       {kSkippedUpdates, 2}},
                           .phases = {{"train", 2.0, step}}});
    figures.Add(EvaluationRecord{.step = step, .prompts = step});
  }
  REQUIRE(figures.steps == 1000);
  REQUIRE(figures.first_step == 1);
  REQUIRE(figures.last_step == 1000);
  REQUIRE(figures.best_reward == 2.0);
  REQUIRE(figures.last_reward == 0.5);
  REQUIRE(figures.skipped_updates == 2000);
  REQUIRE(figures.resent.size() == kMostNoted);
  REQUIRE(figures.evaluations.size() == 2);
  REQUIRE(figures.evaluations[0].step == 1);
  REQUIRE(figures.evaluations[1].step == 1000);
  REQUIRE(TotalPhases(figures)[0].mean_seconds == 2.0);
  REQUIRE(TotalPhases(figures)[0].peak_bytes == 1000);
  const std::string resent = ResentText(figures);
  REQUIRE(resent.find("to 1000 rollouts") != std::string::npos);
  REQUIRE(resent.ends_with("1 in step 32, 968 later"));
  // One line of a terminal, more or less.
  REQUIRE(RewardCurve(figures).size() < 500);
  REQUIRE(RewardCurve(figures).find("step 1: 0.5, step 1000: 0.5, best 2") != std::string::npos);
}

}  // namespace tandem
