#include "controller/reward/scorer_registry.h"

#include <map>
#include <set>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "controller/reward/answer_text.h"
#include "controller/reward/scorer_args.h"
#include "controller/reward/scorers/match.h"
#include "controller/reward/scorers/search_r1_like_qa_em.h"
#include "controller/reward/scorers/verl_scorers.h"

namespace tandem {
namespace {

bool AnyText(const std::string&) { return true; }
bool IsNumber(const std::string& truth) { return WholeNumber(truth).has_value(); }
bool IsInteger(const std::string& truth) { return IntegersEqual(truth, truth); }
// What the extraction of a GSM8K answer can come out as.
bool IsGsm8kAnswer(const std::string& truth) {
  return truth.find_first_of("0123456789") != std::string::npos &&
         truth.find_first_not_of("-.,0123456789") == std::string::npos;
}

bool HasTarget(const std::string& truth) { return !QaTargets(truth).empty(); }

struct Entry {
  ScorerFactory make;
  std::set<std::string> args;
  bool (*can_match)(const std::string& truth);  // null: a term, which looks at no ground truth
  const char* truth;                            // what it must be
  std::set<std::string> extras = {};            // keys of RewardScore::extras
};

const std::map<std::string, Entry>& Registry() {
  static const std::map<std::string, Entry> registry = {
      {"exact", {&ExactScorer, {}, &AnyText, "a text"}},
      {"number", {&NumberScorer, {"tolerance"}, &IsNumber, "a number"}},
      {"first_integer", {&FirstIntegerScorer, {}, &IsInteger, "an integer"}},
      {"last_integer", {&LastIntegerScorer, {}, &IsInteger, "an integer"}},
      {"regex", {&RegexScorer, {"pattern"}, &AnyText, "a text"}},
      {"gsm8k_strict", {&Gsm8kStrictScorer, {"format_score"}, &IsGsm8kAnswer, "a number"}},
      {"gsm8k_flexible", {&Gsm8kFlexibleScorer, {"format_score"}, &IsGsm8kAnswer, "a number"}},
      {"math_reward", {&MathRewardScorer, {}, &AnyText, "a text"}},
      {"math_dapo", {&MathDapoScorer, {"strict_box_verify"}, &AnyText, "a text", {"acc"}}},
      {"prime_math", {&PrimeMathScorer, {}, &AnyText, "a text"}},
      {"search_r1_like_qa_em",
       {&SearchR1Scorer, {"format_score", "subem"}, &HasTarget, "a text or {\"target\": [...]}"}},
      {"format", {&FormatScorer, {"pattern"}, nullptr, nullptr}},
      {"length", {&LengthScorer, {"max_tokens", "buffer_tokens", "factor"}, nullptr, nullptr}}};
  return registry;
}

}  // namespace

std::vector<std::string> ScorerNames() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : Registry()) names.push_back(name);
  return names;
}

std::vector<std::string> FunctionNames() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : Registry()) {
    if (entry.can_match != nullptr) names.push_back(name);
  }
  return names;
}

std::set<std::string> ExtrasOf(const std::string& name) {
  const auto found = Registry().find(name);
  return found == Registry().end() ? std::set<std::string>() : found->second.extras;
}

absl::Status CheckTruth(const std::string& name, const std::string& truth) {
  const auto found = Registry().find(name);
  if (found == Registry().end() || found->second.can_match == nullptr ||
      found->second.can_match(truth)) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "no response can match the ground truth \"{}\": reward {} needs {}; correct the row, or "
      "choose another reward.function",
      truth, name, found->second.truth);
}

absl::StatusOr<Scorer> MakeScorer(const std::string& name, const std::string& args_json) {
  const auto found = Registry().find(name);
  if (found == Registry().end()) {
    return InvalidArgument("unknown reward {} (known: {})", name, fmt::join(ScorerNames(), ", "));
  }
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json args,
                          ParseScorerArgs(name, args_json, found->second.args));
  absl::StatusOr<Scorer> scorer = found->second.make(args);
  if (!scorer.ok()) return Annotate(scorer.status(), "reward " + name);
  return scorer;
}

}  // namespace tandem
