// Scorers for any data: comparison with the ground truth, and terms that look at the response
// alone. Arguments in parentheses.
#pragma once

#include "controller/reward/reward_function.h"

namespace tandem {

absl::StatusOr<Scorer> ExactScorer(const nlohmann::json& args);
absl::StatusOr<Scorer> NumberScorer(const nlohmann::json& args);  // (tolerance)
absl::StatusOr<Scorer> FirstIntegerScorer(const nlohmann::json& args);
absl::StatusOr<Scorer> LastIntegerScorer(const nlohmann::json& args);
absl::StatusOr<Scorer> RegexScorer(const nlohmann::json& args);   // (pattern)
absl::StatusOr<Scorer> FormatScorer(const nlohmann::json& args);  // term (pattern)
// Term (max_tokens, buffer_tokens, factor): see overlong.h.
absl::StatusOr<Scorer> LengthScorer(const nlohmann::json& args);

}  // namespace tandem
