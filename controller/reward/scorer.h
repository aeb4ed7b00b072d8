// What judges one response.
#pragma once

#include <functional>

#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

#include "controller/reward/reward_function.h"

namespace tandem {

// Pure and thread-safe.
using Scorer = std::function<RewardScore(const RewardItem&)>;

// Builds one from its arguments, an object with known keys only. InvalidArgument: a value of the
// wrong type.
using ScorerFactory = absl::StatusOr<Scorer> (*)(const nlohmann::json& args);

}  // namespace tandem
