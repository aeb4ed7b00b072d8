// Arguments of a scorer, as reward.args and reward.terms give them.
#pragma once

#include <memory>
#include <set>
#include <string>

#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

#include "controller/reward/answer_pattern.h"

namespace tandem {

// `text` is a JSON object with keys of `known`, or empty. InvalidArgument names what is wrong.
absl::StatusOr<nlohmann::json> ParseScorerArgs(const std::string& scorer,
                                               const std::string& text,
                                               const std::set<std::string>& known);

// The value of `key`, or `fallback` without one. InvalidArgument: another type.
absl::StatusOr<double> NumberArg(const nlohmann::json& args,
                                 const std::string& key,
                                 double fallback);
absl::StatusOr<bool> FlagArg(const nlohmann::json& args, const std::string& key, bool fallback);
// The argument "pattern", compiled. InvalidArgument: there is none, or it does not compile.
absl::StatusOr<std::shared_ptr<const AnswerPattern>> PatternArg(const nlohmann::json& args);

}  // namespace tandem
