#include "controller/reward/scorers/math_dapo.h"

#include <fmt/format.h>

#include "controller/reward/answer_pattern.h"
#include "controller/reward/answer_text.h"
#include "controller/reward/boxed_answer.h"
#include "controller/reward/scorers/math_dapo_normalize.h"

namespace tandem {
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

}  // namespace tandem
