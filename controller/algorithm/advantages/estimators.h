// The estimators, one file each with its formula and paper. A new one is declared here, listed in
// advantage_registry.cc, and named in config_algorithm.proto and common/config/estimator_rules.cc.
//
// In the formulas: r_t token reward, m_t mask, s = sum of r_t, n = size of the group; means run
// over the group. A result is spread over the trained tokens unless it has an index t.
#pragma once

#include "controller/algorithm/advantage_estimator.h"

namespace tandem {

AdvantageEstimator GrpoEstimator(std::string_view name);  // grpo, grpo_vectorized
AdvantageEstimator GrpoPasskEstimator();
AdvantageEstimator GdpoEstimator();
AdvantageEstimator RlooEstimator();
AdvantageEstimator RlooVectorizedEstimator();
AdvantageEstimator ReinforcePlusPlusEstimator();
AdvantageEstimator ReinforcePlusPlusBaselineEstimator();
AdvantageEstimator RemaxEstimator();
AdvantageEstimator OpoEstimator();
AdvantageEstimator GpgEstimator();
AdvantageEstimator OptimalTokenBaselineEstimator();
AdvantageEstimator TirOptimalTokenBaselineEstimator();

}  // namespace tandem
