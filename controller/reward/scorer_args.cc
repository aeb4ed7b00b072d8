#include "controller/reward/scorer_args.h"

#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/base/json_nesting.h"
#include "common/base/status.h"

namespace tandem {

using Json = nlohmann::json;

absl::StatusOr<Json> ParseScorerArgs(const std::string& scorer,
                                     const std::string& text,
                                     const std::set<std::string>& known) {
  if (text.empty()) return Json::object();
  TANDEM_RETURN_IF_ERROR(Annotate(CheckJsonNesting(text), fmt::format("reward {}: args", scorer)));
  Json args = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!args.is_object()) {
    return InvalidArgument("reward {}: args is not a JSON object: {}", scorer, text);
  }
  for (const auto& [key, value] : args.items()) {
    if (!known.contains(key)) {
      return InvalidArgument("reward {}: unknown argument {} (known: {})", scorer, key,
                             known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
    }
  }
  return args;
}

absl::StatusOr<double> NumberArg(const Json& args, const std::string& key, double fallback) {
  if (!args.contains(key)) return fallback;
  if (!args[key].is_number()) return InvalidArgument("argument {} must be a number", key);
  return args[key].get<double>();
}

absl::StatusOr<bool> FlagArg(const Json& args, const std::string& key, bool fallback) {
  if (!args.contains(key)) return fallback;
  if (!args[key].is_boolean()) return InvalidArgument("argument {} must be true or false", key);
  return args[key].get<bool>();
}

absl::StatusOr<std::shared_ptr<const AnswerPattern>> PatternArg(const Json& args) {
  if (!args.contains("pattern") || !args["pattern"].is_string()) {
    return InvalidArgument("needs the argument pattern, a regular expression");
  }
  TANDEM_ASSIGN_OR_RETURN(auto regex, AnswerPattern::Compile(args["pattern"].get<std::string>()));
  return std::make_shared<const AnswerPattern>(std::move(regex));
}

}  // namespace tandem
