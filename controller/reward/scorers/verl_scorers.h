// verl's scorers as Tandem's: the same scores under the same names. Arguments in parentheses.
#pragma once

#include "controller/reward/reward_function.h"

namespace tandem {

absl::StatusOr<Scorer> Gsm8kStrictScorer(const nlohmann::json& args);    // (format_score)
absl::StatusOr<Scorer> Gsm8kFlexibleScorer(const nlohmann::json& args);  // (format_score)
absl::StatusOr<Scorer> MathRewardScorer(const nlohmann::json& args);
absl::StatusOr<Scorer> MathDapoScorer(const nlohmann::json& args);  // (strict_box_verify)
absl::StatusOr<Scorer> PrimeMathScorer(const nlohmann::json& args);
// (format_score, subem)
absl::StatusOr<Scorer> SearchR1Scorer(const nlohmann::json& args);

}  // namespace tandem
