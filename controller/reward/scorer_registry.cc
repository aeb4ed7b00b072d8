#include "controller/reward/scorer_registry.h"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "controller/reward/scorer_args.h"

namespace tandem {

#define TANDEM_REGISTERED(symbol, name) extern const RewardScorer symbol;
#include "reward_functions.inc"
#include "reward_terms.inc"
#undef TANDEM_REGISTERED

namespace {

struct NamedScorer {
  const char* name;
  const RewardScorer* scorer;
};

#define TANDEM_REGISTERED(symbol, name) {name, &symbol},
constexpr NamedScorer kFunctions[] = {
#include "reward_functions.inc"
};
constexpr NamedScorer kTerms[] = {
#include "reward_terms.inc"
};
#undef TANDEM_REGISTERED

// Null: there is no such function.
const RewardScorer* FindFunction(const std::string& name) {
  const auto* found = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                                   [&](const NamedScorer& known) { return name == known.name; });
  return found == std::end(kFunctions) ? nullptr : found->scorer;
}

// Finds a function or a term; null: there is neither.
const RewardScorer* FindScorer(const std::string& name) {
  for (const NamedScorer& term : kTerms) {
    if (name == term.name) return term.scorer;
  }
  return FindFunction(name);
}

std::vector<std::string> SortedNames(std::span<const NamedScorer> a,
                                     std::span<const NamedScorer> b) {
  std::vector<std::string> names;
  for (const std::span<const NamedScorer> table : {a, b}) {
    for (const NamedScorer& known : table) names.emplace_back(known.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The reason why Tandem has no function for a data source that verl scores; empty: verl has none
// either.
std::string MissingScorer(const std::string& data_source) {
  static constexpr char kAlgebra[] =
      " (verl compares formulas with a computer algebra system there; prime_math compares their "
      "normal forms only)";
  static constexpr char kCode[] = " (verl runs code there)";
  static const std::map<std::string, const char*> known = {
      {"numina_aops_forum", kAlgebra}, {"numina_synthetic_math", kAlgebra},
      {"numina_amc_aime", kAlgebra},   {"numina_synthetic_amc", kAlgebra},
      {"numina_cn_k12", kAlgebra},     {"numina_olympiads", kAlgebra},
      {"codecontests", kCode},         {"apps", kCode},
      {"codeforces", kCode},           {"taco", kCode}};
  const auto found = known.find(data_source);
  return found == known.end() ? "" : found->second;
}

}  // namespace

std::vector<std::string> ScorerNames() { return SortedNames(kFunctions, kTerms); }

std::vector<std::string> FunctionNames() { return SortedNames(kFunctions, {}); }

std::set<std::string> KnownDataSources() {
  std::set<std::string> sources;
  for (const NamedScorer& function : kFunctions) {
    for (const std::string_view source : function.scorer->data_sources) {
      if (!source.ends_with('*')) sources.emplace(source);
    }
  }
  return sources;
}

absl::StatusOr<std::string> FunctionForDataSource(const std::string& data_source) {
  const NamedScorer* by_prefix = nullptr;
  for (const NamedScorer& function : kFunctions) {
    for (const std::string_view source : function.scorer->data_sources) {
      if (source == data_source) return function.name;
      if (source.ends_with('*') && data_source.starts_with(source.substr(0, source.size() - 1))) {
        by_prefix = &function;
      }
    }
  }
  if (by_prefix != nullptr) return by_prefix->name;
  return InvalidArgument(
      "no built-in reward for data_source \"{}\"{}: set reward.function to one of {}, or to remote",
      data_source, MissingScorer(data_source), fmt::join(FunctionNames(), ", "));
}

std::set<std::string> ExtraKeys(const std::string& name) {
  const RewardScorer* scorer = FindScorer(name);
  if (scorer == nullptr) return {};
  return {scorer->extras.begin(), scorer->extras.end()};
}

absl::Status CheckTruth(const std::string& name, const std::string& truth) {
  const RewardScorer* function = FindFunction(name);
  if (function == nullptr || function->accepts_truth == nullptr || function->accepts_truth(truth)) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "no response can match the ground truth \"{}\": reward {} needs {}; correct the row, or "
      "choose another reward.function",
      truth, name, function->truth);
}

absl::StatusOr<Scorer> MakeScorer(const std::string& name, const std::string& args_json) {
  const RewardScorer* scorer = FindScorer(name);
  if (scorer == nullptr) {
    return InvalidArgument("unknown reward {} (known: {})", name, fmt::join(ScorerNames(), ", "));
  }
  TANDEM_ASSIGN_OR_RETURN(
      const nlohmann::json args,
      ParseScorerArgs(name, args_json, {scorer->args.begin(), scorer->args.end()}));
  absl::StatusOr<Scorer> made = scorer->make(args);
  if (!made.ok()) return Annotate(made.status(), "reward " + name);
  return made;
}

}  // namespace tandem
