// The built-in scorers by name, from which reward.function and reward.terms choose.
//
// To add a reward function, add a source to scorers/ that describes how it scores and defines
//   extern const RewardScorer kGsm8kStrictScorer = {.make = MakeGsm8kStrict};
// Its name in reward.function is the symbol's in snake case, gsm8k_strict; the symbol of a term for
// reward.terms ends in Term instead of Scorer. The build finds both
// (deploy/cmake/TandemRegistry.cmake). docs/guides/first_reward.md explains each step.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

#include "controller/reward/reward_function.h"

namespace tandem {

// A function compares a response with its ground truth; a term uses the response alone.
struct RewardScorer {
  // Keys that reward.args, or the args of a term, may have.
  std::span<const std::string_view> args = {};
  // The data sources whose rows the function scores with reward.function=auto; "aime*" stands for
  // all that begin with "aime".
  std::span<const std::string_view> data_sources = {};
  // Whether a response could match this ground truth; null: every text is accepted. `truth`
  // completes the message "reward NAME needs" if none could.
  bool (*accepts_truth)(const std::string& truth) = nullptr;
  std::string_view truth = "a text";
  // The keys of RewardScore::extras that every response has.
  std::span<const std::string_view> extras = {};
  // Builds the scorer. InvalidArgument: an argument is missing or has a wrong value. `args` has
  // known keys only.
  absl::StatusOr<Scorer> (*make)(const nlohmann::json& args) = nullptr;
};

// Builds a function or a term. `args_json` is a JSON object or empty. InvalidArgument names an
// unknown scorer (and lists the known ones), an unknown argument or a pattern that does not
// compile.
absl::StatusOr<Scorer> MakeScorer(const std::string& name, const std::string& args_json);

// Names of functions and terms, in alphabetical order.
std::vector<std::string> ScorerNames();
// Names of functions only, the values of reward.function besides auto and remote.
std::vector<std::string> FunctionNames();

// The function for rows with this data_source if reward.function is auto, as chosen by verl's
// default_compute_score. InvalidArgument: an unknown source; the message says what to do and, for a
// source that verl knows, what verl's scorer needs (a computer algebra system, or running code).
absl::StatusOr<std::string> FunctionForDataSource(const std::string& data_source);

// The data sources that functions name in full, without those of a prefix such as "aime*".
std::set<std::string> KnownDataSources();

// The keys of RewardScore::extras that every response of scorer `name` has.
std::set<std::string> ExtraKeys(const std::string& name);

// InvalidArgument: no response could match `truth` under function `name`.
absl::Status CheckTruth(const std::string& name, const std::string& truth);

}  // namespace tandem
