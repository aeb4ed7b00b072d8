// Arguments of scorers, from reward.args and reward.terms.
#pragma once

#include <memory>
#include <set>
#include <string>

#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

#include "controller/reward/answer_pattern.h"

namespace tandem {

// Parses `text`, a JSON object with keys of `known`, or empty. InvalidArgument names the error.
absl::StatusOr<nlohmann::json> ParseScorerArgs(const std::string& scorer,
                                               const std::string& text,
                                               const std::set<std::string>& known);

// The value of `key`, or `fallback` if it is missing. InvalidArgument: it has another type.
absl::StatusOr<double> NumberArg(const nlohmann::json& args,
                                 const std::string& key,
                                 double fallback);
absl::StatusOr<bool> FlagArg(const nlohmann::json& args, const std::string& key, bool fallback);
// The argument "pattern", compiled. InvalidArgument: it is missing or does not compile.
absl::StatusOr<std::shared_ptr<const AnswerPattern>> PatternArg(const nlohmann::json& args);

}  // namespace tandem
