#include "controller/reward/scorers/math_dapo.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/text/unicode/utf8.h"
#include "controller/reward/answer_pattern.h"
#include "controller/reward/answer_text.h"
#include "controller/reward/scorer_args.h"
#include "controller/reward/scorer_registry.h"

namespace tandem {
namespace {

constexpr size_t kNone = std::string::npos;

// Applied in this order, each to the result of the previous one.
constexpr std::pair<const char*, const char*> kSubstitutions[] = {
    {"an ", ""},          {"a ", ""},
    {".$", "$"},          {"\\$", ""},
    {"\\ ", ""},          {" ", ""},
    {"mbox", "text"},     {",\\text{and}", ","},
    {"\\text{and}", ","}, {"\\text{m}", "\\text{}"},
};

constexpr const char* kRemoved[] = {
    "square",     "ways",       "integers",  "dollars",      "mph",
    "inches",     "hours",      "km",        "units",        "\\ldots",
    "sue",        "points",     "feet",      "minutes",      "digits",
    "cents",      "degrees",    "cm",        "gm",           "pounds",
    "meters",     "meals",      "edges",     "students",     "childrentickets",
    "multiples",  "\\text{s}",  "\\text{.}", "\\text{\ns}",  "\\text{}^2",
    "\\text{}^3", "\\text{\n}", "\\text{}",  "\\mathrm{th}", "^\\circ",
    "^{\\circ}",  "\\;",        ",\\!",      "{,}",          "\"",
    "\\dots"};

std::string RemoveWords(std::string text) {
  const size_t equals = text.rfind('=');
  if (equals != kNone) text.erase(0, equals + 1);
  for (const auto& [from, to] : kSubstitutions) ReplaceAll(text, from, to);
  for (const char* word : kRemoved) ReplaceAll(text, word, "");
  return text;
}

size_t LineEnd(const std::string& text, size_t from) {
  return std::min(text.find('\n', from), text.size());
}

// Replaces each line that has at least two dollar signs by the part from the first to the second.
std::string KeepFirstFormula(const std::string& text) {
  std::string out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = LineEnd(text, begin);
    const std::string line = text.substr(begin, end - begin);
    const size_t first = line.find('$');
    const size_t second = first == kNone ? kNone : line.find('$', first + 1);
    out += second == kNone ? line : line.substr(first, second + 1 - first);
    if (end < text.size()) out += '\n';
    begin = end + 1;
  }
  return out;
}

// Replaces "\text{a}b" by "ab" for every `open`, up to the first closing brace of the same line
// (nested braces are not counted), or with `greedy` up to the last one.
std::string Unwrap(const std::string& text, std::string_view open, bool greedy) {
  std::string out;
  size_t pos = 0;
  for (size_t at = text.find(open); at != kNone; at = text.find(open, at)) {
    const size_t inside = at + open.size(), line_end = LineEnd(text, inside);
    const std::string_view line = std::string_view(text).substr(inside, line_end - inside);
    const size_t close = greedy ? line.rfind('}') : line.find('}');
    if (close == std::string_view::npos) {
      at = line_end;  // the line has no closing brace
      continue;
    }
    out.append(text, pos, at - pos).append(line.substr(0, close));
    at = pos = inside + close + 1;
  }
  return out.append(text, pos);
}

// "frac12" -> "frac{1}{2}", also if the second character is a brace, but not if it is a line break.
std::string BraceDapoFractions(const std::string& text) {
  constexpr std::string_view kFrac = "frac";
  std::string out;
  size_t pos = 0;
  for (size_t at = text.find(kFrac); at != kNone; at = text.find(kFrac, at)) {
    const size_t first = at += kFrac.size();
    if (first >= text.size() || text[first] == '{') continue;
    const size_t second = first + CharacterBytes(text, first);
    if (second >= text.size() || text[second] == '\n') continue;
    const size_t end = second + CharacterBytes(text, second);
    out.append(text, pos, first - pos).append("{").append(text, first, second - first);
    out.append("}{").append(text, second, end - second).append("}");
    at = pos = end;
  }
  return out.append(text, pos);
}

// "sqrt2" -> "sqrt{2}".
std::string BraceDapoRoots(const std::string& text) {
  constexpr std::string_view kSqrt = "sqrt";
  std::string out;
  size_t pos = 0;
  for (size_t at = text.find(kSqrt); at != kNone; at = text.find(kSqrt, at)) {
    const size_t first = at += kSqrt.size();
    if (first >= text.size() || text[first] == '{') continue;
    const size_t end = first + CharacterBytes(text, first);
    out.append(text, pos, first - pos).append("{").append(text, first, end - first).append("}");
    at = pos = end;
  }
  return out.append(text, pos);
}

// Python's str.isdigit: decimal digits of all scripts, superscripts, circled digits and others.
bool IsDigits(const std::string& text) {
  static const AnswerPattern pattern =
      AnswerPattern::Compile(
          "\\A[\\p{Nd}\\x{B2}\\x{B3}\\x{B9}\\x{1369}-\\x{1371}\\x{19DA}\\x{2070}"
          "\\x{2074}-\\x{2079}\\x{2080}-\\x{2089}\\x{2460}-\\x{2468}\\x{2474}-\\x{247C}"
          "\\x{2488}-\\x{2490}\\x{24EA}\\x{24F5}-\\x{24FD}\\x{24FF}\\x{2776}-\\x{277E}"
          "\\x{2780}-\\x{2788}\\x{278A}-\\x{2792}\\x{10A40}-\\x{10A43}\\x{10E60}-\\x{10E68}"
          "\\x{11052}-\\x{1105A}\\x{1F100}-\\x{1F10A}]++\\z")
          .value();
  return pattern.LastCapture(text).has_value();
}

}  // namespace

std::string NormalizeFinalAnswer(const std::string& answer) {
  std::string text = KeepFirstFormula(RemoveWords(AsUtf8(answer)));
  for (const char* open : {"\\text{", "\\textbf{", "\\overline{"}) {
    text = Unwrap(text, open, /*greedy=*/false);
  }
  text = BraceDapoRoots(BraceDapoFractions(Unwrap(text, "\\boxed{", /*greedy=*/true)));
  ReplaceAll(text, "$", "");
  std::string digits = text;
  ReplaceAll(digits, ",", "");
  return StripSpace(IsDigits(digits) ? digits : text);
}

namespace {

constexpr int kDapoTailCharacters = 300;  // the longest answer of MATH-500 has 159
constexpr int kBoxCharacters = 100;
constexpr char kInvalid[] = "[INVALID]";

std::optional<std::string> AnswerLine(const std::string& text) {
  static const AnswerPattern pattern =
      AnswerPattern::Compile(fmt::format("(?i)Answer{0}*:{0}*([^\\n]+)", kSpaceClass)).value();
  return pattern.LastCapture(text);
}

DapoVerdict MakeDapoVerdict(bool correct, std::optional<std::string> pred) {
  return {.score = correct ? 1.0 : -1.0, .correct = correct, .pred = std::move(pred)};
}

}  // namespace

DapoVerdict ScoreMathDapo(const std::string& response, const std::string& truth, bool strict_box) {
  const std::string tail = AsUtf8(LastCharacters(response, kDapoTailCharacters));
  const std::optional<std::string> boxed = LastBoxed(LastCharacters(tail, kBoxCharacters));
  if (strict_box) return MakeDapoVerdict(boxed == truth, boxed);
  const std::string pred = NormalizeFinalAnswer(AnswerLine(tail).value_or(kInvalid));
  if (pred == kInvalid && boxed) return MakeDapoVerdict(*boxed == truth, boxed);
  return MakeDapoVerdict(pred == NormalizeFinalAnswer(truth), pred);
}

namespace {

absl::StatusOr<Scorer> MakeMathDapo(const nlohmann::json& args) {
  TANDEM_ASSIGN_OR_RETURN(const bool strict, FlagArg(args, "strict_box_verify", false));
  return Scorer([strict](const RewardItem& item) {
    const DapoVerdict verdict = ScoreMathDapo(item.response, item.ground_truth, strict);
    return RewardScore{.score = verdict.score,
                       .extras = {{"acc", verdict.correct ? 1.0 : 0.0}},
                       .prediction = verdict.pred.value_or("")};
  });
}

constexpr std::string_view kMathDapoArgs[] = {"strict_box_verify"};
constexpr std::string_view kMathDapoSources[] = {"math_dapo", "math", "math_dapo_reasoning",
                                                 "aime*"};
constexpr std::string_view kMathDapoExtras[] = {"acc"};

}  // namespace

extern const RewardScorer kMathDapoScorer = {.args = kMathDapoArgs,
                                             .data_sources = kMathDapoSources,
                                             .extras = kMathDapoExtras,
                                             .make = MakeMathDapo};

}  // namespace tandem
