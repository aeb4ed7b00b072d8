#include <array>

#include <fmt/ranges.h>

#include "common/base/status.h"
#include "controller/algorithm/advantage_estimator.h"
#include "controller/algorithm/advantages/estimators.h"

namespace tandem {
namespace {

const auto& Table() {
  static const std::array kTable = {GrpoEstimator("grpo"),
                                    GrpoEstimator("grpo_vectorized"),
                                    GrpoPasskEstimator(),
                                    GdpoEstimator(),
                                    RlooEstimator(),
                                    RlooVectorizedEstimator(),
                                    ReinforcePlusPlusEstimator(),
                                    ReinforcePlusPlusBaselineEstimator(),
                                    RemaxEstimator(),
                                    OpoEstimator(),
                                    GpgEstimator(),
                                    OptimalTokenBaselineEstimator(),
                                    TirOptimalTokenBaselineEstimator()};
  return kTable;
}

}  // namespace

absl::StatusOr<AdvantageEstimator> FindAdvantageEstimator(const std::string& name) {
  for (const AdvantageEstimator& estimator : Table()) {
    if (estimator.name == name) return estimator;
  }
  return InvalidArgument("no advantage estimator {}; there are {}", name,
                         fmt::join(AdvantageEstimatorNames(), ", "));
}

std::vector<std::string> AdvantageEstimatorNames() {
  std::vector<std::string> names;
  for (const AdvantageEstimator& estimator : Table()) names.emplace_back(estimator.name);
  return names;
}

}  // namespace tandem
