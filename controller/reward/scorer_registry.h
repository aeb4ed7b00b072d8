// The built-in scorers by name: what reward.function and reward.terms choose from.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "controller/reward/reward_function.h"

namespace tandem {

// Pure and thread-safe.
using Scorer = std::function<double(const RewardItem&)>;

// Functions compare a response with its ground truth: exact, number, regex, first_integer,
// last_integer, gsm8k_strict, gsm8k_flexible. Terms look at the response alone: format, length.
// `args_json` is a JSON object or empty. InvalidArgument names an unknown scorer (and lists the
// known ones), an unknown argument or a pattern that does not compile.
absl::StatusOr<Scorer> MakeScorer(const std::string& name, const std::string& args_json);

std::vector<std::string> ScorerNames();
// Those that compare with a ground truth: what reward.function takes beside auto and remote.
std::vector<std::string> FunctionNames();

// InvalidArgument if no response at all could match `truth` under function `name`.
absl::Status CheckTruth(const std::string& name, const std::string& truth);

// The function that reward.function = auto uses for a data_source, e.g. "openai/gsm8k".
// InvalidArgument for a source nobody knows, with the remedy.
absl::StatusOr<std::string> FunctionOfDataSource(const std::string& data_source);

}  // namespace tandem
