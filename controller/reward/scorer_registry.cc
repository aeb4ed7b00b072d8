#include "controller/reward/scorer_registry.h"

#include <cmath>
#include <map>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include "common/base/status_macros.h"
#include "controller/reward/answer_match.h"
#include "controller/reward/answer_pattern.h"
#include "controller/reward/gsm8k.h"
#include "controller/reward/overlong.h"

namespace tandem {
namespace {

using Json = nlohmann::json;
using Factory = absl::StatusOr<Scorer> (*)(const Json& args);

absl::StatusOr<Json> ParseArgs(const std::string& name, const std::string& text) {
  if (text.empty()) return Json::object();
  Json args = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (args.is_object()) return args;
  return InvalidArgument("reward {}: args is no JSON object: {}", name, text);
}

absl::Status CheckKeys(const std::string& name,
                       const Json& args,
                       const std::set<std::string>& known) {
  for (const auto& [key, value] : args.items()) {
    if (!known.contains(key)) {
      return InvalidArgument("reward {}: unknown argument {} (known: {})", name, key,
                             known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Number(const Json& args, const std::string& key, double fallback) {
  if (!args.contains(key)) return fallback;
  if (!args[key].is_number()) return InvalidArgument("argument {} must be a number", key);
  return args[key].get<double>();
}

double Bool(bool value) { return value ? 1.0 : 0.0; }

absl::StatusOr<Scorer> Exact(const Json&) {
  return Scorer(
      [](const RewardItem& item) { return Bool(ExactMatch(item.response, item.ground_truth)); });
}

absl::StatusOr<Scorer> NumberEqual(const Json& args) {
  TANDEM_ASSIGN_OR_RETURN(const double tolerance, Number(args, "tolerance", 1e-9));
  return Scorer([tolerance](const RewardItem& item) {
    const auto answer = LastNumber(item.response), truth = WholeNumber(item.ground_truth);
    return Bool(answer && truth && std::abs(*answer - *truth) <= tolerance);
  });
}

absl::StatusOr<Scorer> FirstIntegerEqual(const Json&) {
  return Scorer([](const RewardItem& item) {
    const auto answer = FirstInteger(item.response);
    return Bool(answer && IntegersEqual(*answer, item.ground_truth));
  });
}

absl::StatusOr<Scorer> LastIntegerEqual(const Json&) {
  return Scorer([](const RewardItem& item) {
    const auto answer = LastInteger(item.response);
    return Bool(answer && IntegersEqual(*answer, item.ground_truth));
  });
}

absl::StatusOr<Scorer> Gsm8k(const Json& args, Gsm8kMethod method) {
  TANDEM_ASSIGN_OR_RETURN(const double format_score, Number(args, "format_score", 0.0));
  return Scorer([=](const RewardItem& item) {
    return ScoreGsm8k(item.response, item.ground_truth, method, format_score);
  });
}
absl::StatusOr<Scorer> Gsm8kStrict(const Json& args) { return Gsm8k(args, Gsm8kMethod::kStrict); }
absl::StatusOr<Scorer> Gsm8kFlexible(const Json& args) {
  return Gsm8k(args, Gsm8kMethod::kFlexible);
}

absl::StatusOr<std::shared_ptr<AnswerPattern>> Pattern(const Json& args) {
  if (!args.contains("pattern") || !args["pattern"].is_string()) {
    return InvalidArgument("needs the argument pattern, a regular expression");
  }
  TANDEM_ASSIGN_OR_RETURN(auto regex, AnswerPattern::Compile(args["pattern"].get<std::string>()));
  return std::make_shared<AnswerPattern>(std::move(regex));
}

// The first group of the pattern (or the whole match) must equal the ground truth.
absl::StatusOr<Scorer> RegexEqual(const Json& args) {
  TANDEM_ASSIGN_OR_RETURN(const auto pattern, Pattern(args));
  return Scorer([pattern](const RewardItem& item) {
    const auto found = pattern->LastCapture(item.response);
    return Bool(found && ExactMatch(*found, item.ground_truth));
  });
}

absl::StatusOr<Scorer> Format(const Json& args) {
  TANDEM_ASSIGN_OR_RETURN(const auto pattern, Pattern(args));
  return Scorer([pattern](const RewardItem& item) {
    return Bool(pattern->LastCapture(item.response).has_value());
  });
}

absl::StatusOr<Scorer> Length(const Json& args) {
  TANDEM_ASSIGN_OR_RETURN(const double max_tokens, Number(args, "max_tokens", 0));
  TANDEM_ASSIGN_OR_RETURN(const double buffer, Number(args, "buffer_tokens", 0));
  TANDEM_ASSIGN_OR_RETURN(const double factor, Number(args, "factor", 1));
  TANDEM_ASSIGN_OR_RETURN(const OverlongPenalty penalty,
                          OverlongPenalty::Create(static_cast<int64_t>(max_tokens),
                                                  static_cast<int64_t>(buffer), factor));
  return Scorer([penalty](const RewardItem& item) { return penalty(item.response_tokens); });
}

bool AnyText(const std::string&) { return true; }
bool IsNumber(const std::string& truth) { return WholeNumber(truth).has_value(); }
bool IsInteger(const std::string& truth) { return IntegersEqual(truth, truth); }
// What the extraction of a GSM8K answer can come out as.
bool IsGsm8kAnswer(const std::string& truth) {
  return truth.find_first_of("0123456789") != std::string::npos &&
         truth.find_first_not_of("-.,0123456789") == std::string::npos;
}

struct Entry {
  Factory make;
  std::set<std::string> args;
  bool (*can_match)(const std::string& truth);  // null: a term, which looks at no ground truth
  const char* truth;                            // what it must be
};

const std::map<std::string, Entry>& Registry() {
  static const std::map<std::string, Entry> registry = {
      {"exact", {&Exact, {}, &AnyText, "a text"}},
      {"number", {&NumberEqual, {"tolerance"}, &IsNumber, "a number"}},
      {"first_integer", {&FirstIntegerEqual, {}, &IsInteger, "an integer"}},
      {"last_integer", {&LastIntegerEqual, {}, &IsInteger, "an integer"}},
      {"regex", {&RegexEqual, {"pattern"}, &AnyText, "a text"}},
      {"gsm8k_strict", {&Gsm8kStrict, {"format_score"}, &IsGsm8kAnswer, "a number"}},
      {"gsm8k_flexible", {&Gsm8kFlexible, {"format_score"}, &IsGsm8kAnswer, "a number"}},
      {"format", {&Format, {"pattern"}, nullptr, nullptr}},
      {"length", {&Length, {"max_tokens", "buffer_tokens", "factor"}, nullptr, nullptr}}};
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
  TANDEM_ASSIGN_OR_RETURN(const Json args, ParseArgs(name, args_json));
  TANDEM_RETURN_IF_ERROR(CheckKeys(name, args, found->second.args));
  absl::StatusOr<Scorer> scorer = found->second.make(args);
  if (!scorer.ok()) return Annotate(scorer.status(), "reward " + name);
  return scorer;
}

absl::StatusOr<std::string> FunctionOfDataSource(const std::string& data_source) {
  static const std::map<std::string, std::string> by_source = {{"tandem/addition", "last_integer"},
                                                               {"openai/gsm8k", "gsm8k_strict"}};
  const auto found = by_source.find(data_source);
  if (found != by_source.end()) return found->second;
  return InvalidArgument(
      "no built-in reward for data_source \"{}\": set reward.function to one of {}, or to remote",
      data_source, fmt::join(FunctionNames(), ", "));
}

}  // namespace tandem
