// The built-in scorers by name, which reward.function and reward.terms choose from.
//
// To add a reward function, add a source to scorers/ that says how it judges and defines
//   extern const RewardScorer kGsm8kStrictScorer = {.make = MakeGsm8kStrict};
// Its name in reward.function is the symbol's in snake case, gsm8k_strict; a term of reward.terms
// ends in Term instead of Scorer. The build finds both (deploy/cmake/TandemRegistry.cmake).
// docs/guides/first_reward.md does it step by step.
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

// A function compares a response with its ground truth, a term looks at the response alone.
struct RewardScorer {
  // Keys that reward.args, or the args of a term, may have.
  std::span<const std::string_view> args = {};
  // The data sources whose rows it judges with reward.function=auto; "aime*" names all that begin
  // so.
  std::span<const std::string_view> data_sources = {};
  // Whether a response could match this ground truth; null: any text will do. `truth` completes
  // "reward NAME needs" where none could.
  bool (*accepts_truth)(const std::string& truth) = nullptr;
  std::string_view truth = "a text";
  // Keys of RewardScore::extras that every response gets.
  std::span<const std::string_view> extras = {};
  // InvalidArgument: an argument is missing or has a wrong value. `args` has known keys only.
  absl::StatusOr<Scorer> (*make)(const nlohmann::json& args) = nullptr;
};

// Functions and terms. `args_json` is a JSON object or empty. InvalidArgument names an unknown
// scorer (and lists the known ones), an unknown argument or a pattern that does not compile.
absl::StatusOr<Scorer> MakeScorer(const std::string& name, const std::string& args_json);

// Functions and terms, in alphabetical order.
std::vector<std::string> ScorerNames();
// Functions alone: what reward.function takes in addition to auto and remote.
std::vector<std::string> FunctionNames();

// The function of a row with this data_source where reward.function is auto, as verl's
// default_compute_score chooses. InvalidArgument for an unknown source says what to do, and, for
// one that verl knows, what verl's scorer needs (Numina's computer algebra, execution of code).
absl::StatusOr<std::string> FunctionForDataSource(const std::string& data_source);

// The data sources that have a function by their whole name.
std::set<std::string> KnownDataSources();

// The keys of RewardScore::extras that scorer `name` gives every response.
std::set<std::string> ExtraKeys(const std::string& name);

// InvalidArgument if no response at all could match `truth` under function `name`.
absl::Status CheckTruth(const std::string& name, const std::string& truth);

}  // namespace tandem
