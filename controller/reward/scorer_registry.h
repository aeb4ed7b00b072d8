// The built-in scorers by name: what reward.function and reward.terms choose from.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "controller/reward/reward_function.h"

namespace tandem {

// Functions compare a response with its ground truth: those of scorers/match.h and verl_scorers.h.
// Terms look at the response alone: format, length.
// `args_json` is a JSON object or empty. InvalidArgument names an unknown scorer (and lists the
// known ones), an unknown argument or a pattern that does not compile.
absl::StatusOr<Scorer> MakeScorer(const std::string& name, const std::string& args_json);

std::vector<std::string> ScorerNames();
// Those that compare with a ground truth: what reward.function takes beside auto and remote.
std::vector<std::string> FunctionNames();

// The keys of RewardScore::extras that scorer `name` gives every response.
std::set<std::string> ExtrasOf(const std::string& name);

// InvalidArgument if no response at all could match `truth` under function `name`.
absl::Status CheckTruth(const std::string& name, const std::string& truth);

}  // namespace tandem
