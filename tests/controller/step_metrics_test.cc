#include "controller/step_metrics.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("Numbers of mini-batches are averaged into their step's, extremes are kept",
          "[metrics]") {
  std::map<std::string, double> step;
  for (const double value : {1.0, 0.5, 2.25, 0.75}) {
    AddMiniBatchMetric(step, "actor/ratio_min", value, 0.25);
    AddMiniBatchMetric(step, "actor/ratio_mean", value, 0.25);
    AddMiniBatchMetric(step, "actor/ratio_max", value, 0.25);
  }
  REQUIRE(step == std::map<std::string, double>{{"actor/ratio_min", 0.5},
                                                {"actor/ratio_mean", 1.125},
                                                {"actor/ratio_max", 2.25}});
}

TEST_CASE("Extremes below and above 0 are kept as they are", "[metrics]") {
  std::map<std::string, double> step;
  AddMiniBatchMetric(step, "a_max", -3, 0.5);
  AddMiniBatchMetric(step, "a_max", -2, 0.5);
  AddMiniBatchMetric(step, "a_min", 3, 0.5);
  AddMiniBatchMetric(step, "a_min", 4, 0.5);
  REQUIRE(step.at("a_max") == -2);
  REQUIRE(step.at("a_min") == 3);
}

}  // namespace
}  // namespace tandem
