#include "controller/view/series.h"

#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("A short curve has every step", "[view]") {
  const Series series = MakeSeries("a", {{3, 0.5}, {4, std::nan("")}, {6, 2}}, 3);
  REQUIRE(series.name == "a");
  REQUIRE(series.is_exact);
  REQUIRE(series.steps == std::vector<int64_t>{3, 4, 6});
  REQUIRE(series.mean[0] == 0.5);
  REQUIRE(std::isnan(series.mean[1]));
  REQUIRE(series.low.empty());
  REQUIRE(MakeSeries("b", {}, 1).steps.empty());
}

TEST_CASE("A long curve has buckets of equally many steps", "[view]") {
  std::vector<std::pair<int64_t, double>> points;
  for (int64_t step = 1; step <= 10; ++step) points.emplace_back(step, static_cast<double>(step));
  const Series series = MakeSeries("a", points, 4);
  REQUIRE_FALSE(series.is_exact);
  REQUIRE(series.steps == std::vector<int64_t>{3, 6, 9, 10});
  REQUIRE(series.mean == std::vector<double>{2, 5, 8, 10});
  REQUIRE(series.low == std::vector<double>{1, 4, 7, 10});
  REQUIRE(series.high == std::vector<double>{3, 6, 9, 10});
  REQUIRE(MakeSeries("a", points, 1).steps == std::vector<int64_t>{10});
}

TEST_CASE("A bucket counts numbers alone, and one without is a gap", "[view]") {
  const double none = std::nan("");
  const Series series = MakeSeries("a", {{1, 1}, {2, none}, {3, none}, {4, none}}, 2);
  REQUIRE(series.mean[0] == 1);
  REQUIRE(series.high[0] == 1);
  REQUIRE(std::isnan(series.mean[1]));
  REQUIRE(std::isnan(series.low[1]));
}

TEST_CASE("Steps that are missing leave no empty bucket", "[view]") {
  const Series series = MakeSeries("a", {{1, 1}, {2, 2}, {1000, 3}}, 2);
  REQUIRE(series.steps == std::vector<int64_t>{2, 1000});
  REQUIRE(series.mean == std::vector<double>{1.5, 3});
}

}  // namespace tandem
