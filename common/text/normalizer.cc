#include "common/text/normalizer.h"

#include <nlohmann/json.hpp>

#include "common/base/status_macros.h"
#include "common/text/unicode/normalization.h"

namespace tandem {
namespace {

std::string ReplaceAll(std::string_view text, const std::string& from, const std::string& to) {
  std::string out;
  size_t pos = 0;
  for (size_t hit; (hit = text.find(from, pos)) != std::string_view::npos;
       pos = hit + from.size()) {
    out.append(text.substr(pos, hit - pos));
    out += to;
  }
  out.append(text.substr(pos));
  return out;
}

absl::StatusOr<std::string> ReplaceMatches(std::string_view text,
                                           const Regex& regex,
                                           const std::string& to) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Regex::Match> matches, regex.FindAll(text));
  std::string out;
  size_t pos = 0;
  for (const Regex::Match& match : matches) {
    out.append(text.substr(pos, match.begin - pos));
    out += to;
    pos = match.end;
  }
  out.append(text.substr(pos));
  return out;
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::FromJson(const nlohmann::json& json) {
  Normalizer normalizer;
  TANDEM_RETURN_IF_ERROR(normalizer.AddSteps(json));
  return normalizer;
}

absl::Status Normalizer::AddSteps(const nlohmann::json& json) {
  if (json.is_null()) return absl::OkStatus();
  const std::string type = json.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const nlohmann::json& part : json.at("normalizers")) {
      TANDEM_RETURN_IF_ERROR(AddSteps(part));
    }
  } else if (type == "NFC") {
    steps_.push_back({Kind::kNfc, "", "", std::nullopt});
  } else if (type == "Prepend") {
    steps_.push_back({Kind::kPrepend, "", json.at("prepend").get<std::string>(), std::nullopt});
  } else if (type == "Replace") {
    const nlohmann::json& pattern = json.at("pattern");
    const std::string content = json.at("content").get<std::string>();
    if (pattern.contains("String")) {
      const std::string text = pattern.at("String").get<std::string>();
      if (!text.empty()) steps_.push_back({Kind::kReplace, text, content, std::nullopt});
    } else {
      TANDEM_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(pattern.at("Regex").get<std::string>()));
      steps_.push_back({Kind::kReplaceRegex, "", content, std::move(regex)});
    }
  } else {
    return InvalidArgument(
        "normalizer '{}' is not supported (NFC, Replace, Prepend and Sequence are); use a model "
        "with a byte-level BPE tokenizer",
        type);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Normalizer::Apply(std::string_view input) const {
  std::string text(input);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kNfc:
        text = NormalizeNfc(text);
        break;
      case Kind::kReplace:
        text = ReplaceAll(text, step.pattern, step.content);
        break;
      case Kind::kReplaceRegex: {
        TANDEM_ASSIGN_OR_RETURN(text, ReplaceMatches(text, *step.regex, step.content));
        break;
      }
      case Kind::kPrepend:
        if (!text.empty()) text.insert(0, step.content);
        break;
    }
  }
  return text;
}

}  // namespace tandem
