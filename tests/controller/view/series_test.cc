#include "controller/view/series.h"

#include <cmath>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

Series OneSeries(const MetricPoints& points, size_t most) {
  return MakeSeries({"a"}, {{"a", points}}, most).front();
}

}  // namespace

TEST_CASE("A short curve has every step", "[view]") {
  const Series series = OneSeries({{3, 0.5}, {4, std::nan("")}, {6, 2}}, 4);
  REQUIRE(series.name == "a");
  REQUIRE(series.is_exact);
  REQUIRE(series.steps == std::vector<int64_t>{3, 4, 6});
  REQUIRE(series.mean[0] == 0.5);
  REQUIRE(std::isnan(series.mean[1]));
  REQUIRE(series.low.empty());
  REQUIRE(MakeSeries({"b"}, {}, 1).front().steps.empty());
  REQUIRE(OneSeries({}, 1).is_exact);
}

TEST_CASE("A long curve has buckets of equally many steps", "[view]") {
  MetricPoints points;
  for (int64_t step = 1; step <= 10; ++step) points.emplace_back(step, static_cast<double>(step));
  const Series series = OneSeries(points, 4);
  REQUIRE_FALSE(series.is_exact);
  REQUIRE(series.steps == std::vector<int64_t>{3, 6, 9, 10});
  REQUIRE(series.mean == std::vector<double>{2, 5, 8, 10});
  REQUIRE(series.low == std::vector<double>{1, 4, 7, 10});
  REQUIRE(series.high == std::vector<double>{3, 6, 9, 10});
  REQUIRE(OneSeries(points, 1).steps == std::vector<int64_t>{10});
}

TEST_CASE("Curves of one answer share their buckets, however many steps each has", "[view]") {
  MetricPoints all, rare, late;
  for (int64_t step = 1; step <= 100; ++step) all.emplace_back(step, 1);
  for (int64_t step = 25; step <= 100; step += 25) rare.emplace_back(step, 2);
  for (int64_t step = 51; step <= 100; ++step) late.emplace_back(step, 3);
  const auto series =
      MakeSeries({"late", "all", "rare"}, {{"all", all}, {"rare", rare}, {"late", late}}, 10);
  REQUIRE(series[0].name == "late");
  REQUIRE(series[0].steps == std::vector<int64_t>{60, 70, 80, 90, 100});
  REQUIRE(series[1].steps == std::vector<int64_t>{10, 20, 30, 40, 50, 60, 70, 80, 90, 100});
  REQUIRE(series[2].steps == std::vector<int64_t>{30, 50, 80, 100});
  REQUIRE(series[2].mean == std::vector<double>{2, 2, 2, 2});
}

TEST_CASE("A bucket counts numbers alone, and one without is a gap", "[view]") {
  const double none = std::nan("");
  const Series series = OneSeries({{1, 1}, {2, none}, {3, none}, {4, none}}, 2);
  REQUIRE(series.mean[0] == 1);
  REQUIRE(series.high[0] == 1);
  REQUIRE(std::isnan(series.mean[1]));
  REQUIRE(std::isnan(series.low[1]));
}

TEST_CASE("Steps that are missing leave no empty bucket", "[view]") {
  const Series series = OneSeries({{1, 1}, {2, 2}, {1000, 3}}, 2);
  REQUIRE(series.steps == std::vector<int64_t>{500, 1000});
  REQUIRE(series.mean == std::vector<double>{1.5, 3});
}

}  // namespace tandem
