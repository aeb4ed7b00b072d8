#include "controller/reward/scorers/math_reward.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "common/text/jinja/value/python_text.h"
#include "common/text/unicode/utf8.h"
#include "controller/reward/answer_text.h"
#include "controller/reward/scorer_registry.h"

namespace tandem {
namespace {

std::vector<std::string> SplitAt(const std::string& text, const std::string& separator) {
  return jinja::Split(text, separator, -1);
}

// Applies the plain replacements that come before units are removed.
std::string RemoveMarkup(std::string text) {
  constexpr std::pair<const char*, const char*> kReplacements[] = {
      {"\n", ""},     {"\\!", ""},     {"\\\\", "\\"},    {"tfrac", "frac"}, {"dfrac", "frac"},
      {"\\left", ""}, {"\\right", ""}, {"^{\\circ}", ""}, {"^\\circ", ""},   {"\\$", ""}};
  for (const auto& [from, to] : kReplacements) ReplaceAll(text, from, to);
  return text;
}

// "5\text{ cm}" -> "5". nullopt: more than one unit.
std::optional<std::string> CutUnit(const std::string& text) {
  std::vector<std::string> parts = SplitAt(text, "\\text{ ");
  if (parts.size() > 2) return std::nullopt;
  return std::move(parts.front());
}

std::string AddLeadingZeros(std::string text) {
  ReplaceAll(text, " .", " 0.");
  ReplaceAll(text, "{.", "{0.");
  return text.starts_with('.') ? "0" + text : text;
}

// "x=3" and "k =3" -> "3". A longer left side may be part of the answer and is kept.
std::string CutShortLeftSide(const std::string& text) {
  std::vector<std::string> sides = SplitAt(text, "=");
  if (sides.size() != 2 || CountCodePoints(sides[0]) > 2) return text;
  return std::move(sides[1]);
}

// \sqrt3 -> \sqrt{3}. nullopt: the text ends after a \sqrt.
std::optional<std::string> BraceMathRoots(const std::string& text) {
  const std::vector<std::string> parts = SplitAt(text, "\\sqrt");
  std::string out = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string& rest = parts[i];
    if (rest.empty()) return std::nullopt;
    out += "\\sqrt";
    if (rest[0] == '{') {
      out += rest;
      continue;
    }
    const size_t first = CharacterBytes(rest, 0);
    out += "{" + rest.substr(0, first) + "}" + rest.substr(first);
  }
  return out;
}

// \frac12 -> \frac{1}{2}, \frac1{72} -> \frac{1}{72}. Returns the text unchanged if a single
// character follows a \frac. nullopt: the text ends after a \frac.
std::optional<std::string> BraceMathFractions(const std::string& text) {
  const std::vector<std::string> parts = SplitAt(text, "\\frac");
  std::string out = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string& rest = parts[i];
    if (rest.empty()) return std::nullopt;
    out += "\\frac";
    if (rest[0] == '{') {
      out += rest;
      continue;
    }
    const size_t first = CharacterBytes(rest, 0);
    if (first == rest.size()) return text;
    out += "{" + rest.substr(0, first) + "}";
    const size_t second = rest[first] == '{' ? 0 : CharacterBytes(rest, first);
    if (second > 0) out += "{" + rest.substr(first, second) + "}";
    out += rest.substr(first + second);
  }
  return out;
}

// Whether the text is an integer as Python prints it: no plus sign, no leading zero, no "-0".
bool IsPlainInteger(const std::string& text) {
  constexpr size_t kMaxDigits = 4300;  // Python refuses longer ones, so they are left unchanged
  const std::string digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || digits.size() > kMaxDigits) return false;
  if (digits.find_first_not_of("0123456789") != std::string::npos) return false;
  return digits == "0" ? text == "0" : digits[0] != '0';
}

// "3/4" -> \frac{3}{4}.
std::string FractionOfSlash(const std::string& text) {
  const std::vector<std::string> sides = SplitAt(text, "/");
  if (sides.size() != 2 || !IsPlainInteger(sides[0]) || !IsPlainInteger(sides[1])) return text;
  return "\\frac{" + sides[0] + "}{" + sides[1] + "}";
}

}  // namespace

std::optional<std::string> StripMathString(const std::string& text) {
  std::optional<std::string> out = CutUnit(RemoveMarkup(AsUtf8(text)));
  if (!out) return std::nullopt;
  ReplaceAll(*out, "\\\\%", "");
  ReplaceAll(*out, "\\%", "");
  out = AddLeadingZeros(*out);
  if (out->empty()) return out;
  out = BraceMathRoots(CutShortLeftSide(*out));
  if (!out) return std::nullopt;
  ReplaceAll(*out, " ", "");
  out = BraceMathFractions(*out);
  if (!out) return std::nullopt;
  if (*out == "0.5") return "\\frac{1}{2}";
  return FractionOfSlash(*out);
}

namespace {

constexpr std::string_view kSpaced = "\\boxed ";
constexpr std::string_view kBraced = "\\boxed{";

}  // namespace

std::optional<std::string> LastBoxCommand(const std::string& text) {
  const size_t spaced = text.rfind(kSpaced);
  if (spaced != std::string::npos) {
    const size_t end = std::min(text.find('$', spaced + kSpaced.size()), text.size());
    return text.substr(spaced, end - spaced);
  }
  size_t at = text.rfind("\\boxed");
  if (at == std::string::npos) at = text.rfind("\\fbox");
  if (at == std::string::npos) return std::nullopt;
  const std::optional<size_t> end = BalancedEnd(text, at);
  if (!end) return std::nullopt;
  return text.substr(at, *end - at);
}

std::optional<std::string> OpenBox(const std::string& command) {
  if (command.starts_with(kSpaced)) return command.substr(kSpaced.size());
  if (!command.starts_with(kBraced) || !command.ends_with('}')) return std::nullopt;
  return command.substr(kBraced.size(), command.size() - kBraced.size() - 1);
}

bool MathAnswersEqual(const std::string& a, const std::string& b) {
  const std::optional<std::string> left = StripMathString(a), right = StripMathString(b);
  return left && right ? *left == *right : a == b;
}

MathVerdict ScoreMathReward(const std::string& response, const std::string& truth) {
  const std::optional<std::string> box = LastBoxCommand(response);
  const std::optional<std::string> answer = box ? OpenBox(*box) : std::nullopt;
  if (!answer) return {};
  return {.score = MathAnswersEqual(*answer, truth) ? 1.0 : 0.0,
          .pred = StripMathString(*answer).value_or(*answer)};
}

namespace {

absl::StatusOr<Scorer> MakeMathReward(const nlohmann::json&) {
  return Scorer([](const RewardItem& item) {
    const MathVerdict verdict = ScoreMathReward(item.response, item.ground_truth);
    return RewardScore{
        .score = verdict.score, .extras = {}, .prediction = verdict.pred.value_or("")};
  });
}

constexpr std::string_view kMathRewardSources[] = {
    "lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500"};

}  // namespace

extern const RewardScorer kMathRewardScorer = {.data_sources = kMathRewardSources,
                                               .make = MakeMathReward};

}  // namespace tandem
