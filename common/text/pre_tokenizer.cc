#include "common/text/pre_tokenizer.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/text/unicode/properties.h"

namespace tandem {
namespace {

// The expression by which ByteLevel with use_regex splits.
constexpr char kByteLevelPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string EscapeForRegex(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}-#").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const nlohmann::json& json) {
  PreTokenizer result;
  TANDEM_RETURN_IF_ERROR(result.AddSteps(json));
  return result;
}

absl::Status PreTokenizer::AddPattern(const std::string& pattern, Behavior behavior, bool invert) {
  TANDEM_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(pattern));
  steps_.push_back({std::move(regex), behavior, invert});
  return absl::OkStatus();
}

absl::Status PreTokenizer::AddSplit(const nlohmann::json& json) {
  static const std::map<std::string, Behavior> kBehaviors = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"Contiguous", Behavior::kContiguous},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext}};
  const std::string name = json.at("behavior").get<std::string>();
  const auto behavior = kBehaviors.find(name);
  if (behavior == kBehaviors.end()) {
    return InvalidArgument("pre_tokenizer Split has the unknown behavior '{}'", name);
  }
  const nlohmann::json& pattern = json.at("pattern");
  const std::string regex = pattern.contains("String")
                                ? EscapeForRegex(pattern.at("String").get<std::string>())
                                : pattern.at("Regex").get<std::string>();
  return AddPattern(regex, behavior->second, json.value("invert", false));
}

absl::Status PreTokenizer::AddSteps(const nlohmann::json& json) {
  if (json.is_null()) return absl::OkStatus();
  const std::string type = json.at("type").get<std::string>();
  if (byte_level_) {
    return InvalidArgument("pre_tokenizer '{}' after ByteLevel is not supported", type);
  }
  if (type == "Sequence") {
    for (const nlohmann::json& part : json.at("pretokenizers")) {
      TANDEM_RETURN_IF_ERROR(AddSteps(part));
    }
    return absl::OkStatus();
  }
  if (type == "Split") return AddSplit(json);
  if (type == "Digits") {
    const bool individual = json.value("individual_digits", false);
    return AddPattern(individual ? R"(\p{N})" : R"(\p{N}+)", Behavior::kIsolated, false);
  }
  if (type == "ByteLevel") {
    if (json.value("add_prefix_space", true)) steps_.push_back(Step{});
    byte_level_ = true;
    if (!json.value("use_regex", true)) return absl::OkStatus();
    return AddPattern(kByteLevelPattern, Behavior::kIsolated, false);
  }
  return InvalidArgument(
      "pre_tokenizer '{}' is not supported (Sequence, Split, ByteLevel and Digits are); use a "
      "model with a byte-level BPE tokenizer",
      type);
}

// `pieces` cover the word and alternate between matches and what lies between, or hold several
// matches in a row.
std::vector<PreTokenizer::Piece> PreTokenizer::Combine(std::vector<Piece> pieces,
                                                       Behavior behavior) {
  if (behavior == Behavior::kIsolated) return pieces;
  std::vector<Piece> out;
  if (behavior == Behavior::kRemoved) {
    for (const Piece& p : pieces) {
      if (!p.is_match) out.push_back(p);
    }
    return out;
  }
  const bool backward = behavior == Behavior::kMergedWithNext;
  if (backward) std::reverse(pieces.begin(), pieces.end());
  bool previous_match = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& p = pieces[i];
    const bool join = behavior == Behavior::kContiguous ? i > 0 && p.is_match == previous_match
                                                        : i > 0 && p.is_match && !previous_match;
    if (join && backward) {
      out.back().begin = p.begin;
    } else if (join) {
      out.back().end = p.end;
    } else {
      out.push_back(p);
    }
    previous_match = p.is_match;
  }
  if (backward) std::reverse(out.begin(), out.end());
  return out;
}

absl::Status PreTokenizer::SplitWord(const Step& step,
                                     std::string_view word,
                                     std::vector<std::string_view>& out) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Regex::Match> matches, step.pattern->FindAll(word));
  std::vector<Piece> pieces;
  pieces.reserve(matches.size());
  size_t pos = 0;
  for (const Regex::Match& match : matches) {
    if (match.begin > pos) pieces.push_back({pos, match.begin, step.invert});
    pieces.push_back({match.begin, match.end, !step.invert});
    pos = match.end;
  }
  if (pos < word.size()) pieces.push_back({pos, word.size(), step.invert});
  for (const Piece& p : Combine(std::move(pieces), step.behavior)) {
    out.push_back(word.substr(p.begin, p.end - p.begin));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string_view>> PreTokenizer::Split(
    std::string_view text, std::deque<std::string>& storage) const {
  std::vector<std::string_view> words;
  if (!text.empty()) words.push_back(text);
  for (const Step& step : steps_) {
    if (!step.pattern) {
      for (std::string_view& word : words) {
        if (!word.starts_with(' ')) word = storage.emplace_back(" " + std::string(word));
      }
      continue;
    }
    std::vector<std::string_view> pieces;
    for (std::string_view word : words) {
      TANDEM_RETURN_IF_ERROR(SplitWord(step, word, pieces));
    }
    words = std::move(pieces);
  }
  return words;
}

namespace {

// A chain of replacements could double a text with each.
constexpr size_t kLeastNormalizedLimit = 4096, kNormalizedGrowth = 64;
constexpr size_t kMaxNormalizerContent = 256;
constexpr size_t kMaxNormalizerSteps = 64;

// A text that becomes longer than `most` is cut a little after that length.
std::string ReplaceAll(std::string_view text,
                       const std::string& from,
                       const std::string& to,
                       size_t most) {
  std::string out;
  size_t pos = 0;
  for (size_t hit; (hit = text.find(from, pos)) != std::string_view::npos;
       pos = hit + from.size()) {
    out.append(text.substr(pos, hit - pos));
    out += to;
    if (out.size() > most) return out;
  }
  out.append(text.substr(pos));
  return out;
}

absl::StatusOr<std::string> ReplaceMatches(std::string_view text,
                                           const Regex& regex,
                                           const std::string& to,
                                           size_t most) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Regex::Match> matches, regex.FindAll(text));
  std::string out;
  size_t pos = 0;
  for (const Regex::Match& match : matches) {
    out.append(text.substr(pos, match.begin - pos));
    out += to;
    if (out.size() > most) return out;
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
  if (steps_.size() >= kMaxNormalizerSteps) {
    return InvalidArgument("the normalizer has more than {} steps", kMaxNormalizerSteps);
  }
  for (const char* key : {"content", "prepend"}) {
    if (json.is_object() && json.value(key, std::string()).size() > kMaxNormalizerContent) {
      return InvalidArgument("normalizer: its {} has more than {} bytes", key,
                             kMaxNormalizerContent);
    }
  }
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
  const size_t most = kLeastNormalizedLimit + kNormalizedGrowth * input.size();
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kNfc:
        text = NormalizeNfc(text);
        break;
      case Kind::kReplace:
        text = ReplaceAll(text, step.pattern, step.content, most);
        break;
      case Kind::kReplaceRegex: {
        TANDEM_ASSIGN_OR_RETURN(text, ReplaceMatches(text, *step.regex, step.content, most));
        break;
      }
      case Kind::kPrepend:
        if (!text.empty()) text.insert(0, step.content);
        break;
    }
    if (text.size() > most) {
      return InvalidArgument(
          "the normalizer of the tokenizer makes {} bytes and more of {}: use the tokenizer.json "
          "of "
          "the model's publisher",
          text.size(), input.size());
    }
  }
  return text;
}

}  // namespace tandem
