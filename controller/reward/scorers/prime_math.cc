#include "controller/reward/scorers/prime_math.h"

#include <string_view>

#include <absl/strings/ascii.h>

#include "controller/reward/answer_text.h"
#include "controller/reward/scorer_registry.h"
#include "controller/reward/scorers/math_reward.h"

namespace tandem {
namespace {

// "\text{Monday}" -> "Monday", if the braces are not empty and the text has only one line.
std::string OpenText(const std::string& text) {
  constexpr std::string_view kOpen = "\\text{";
  const bool enclosed = text.starts_with(kOpen) && text.ends_with('}') &&
                        text.size() > kOpen.size() + 1 && text.find('\n') == std::string::npos;
  if (!enclosed) return text;
  return StripSpace(text.substr(kOpen.size(), text.size() - kOpen.size() - 1));
}

// The last position of `marker` (lower case), ignoring the case of `text`.
size_t FindLast(const std::string& text, std::string_view marker) {
  return absl::AsciiStrToLower(text).rfind(marker);
}

// The content of the last \boxed, or of the last \fbox if there is none, from its first brace on.
std::optional<std::string> LastBox(const std::string& text) {
  size_t at = text.rfind("\\boxed");
  if (at == std::string::npos) at = text.rfind("\\fbox");
  if (at == std::string::npos) return std::nullopt;
  const size_t open = text.find('{', at);
  const std::optional<size_t> end = BalancedEnd(text, at);
  if (open == std::string::npos || !end) return std::nullopt;
  return StripSpace(std::string_view(text).substr(open + 1, *end - 1 - (open + 1)));
}

}  // namespace

std::string NormalizePrimeAnswer(const std::string& answer) {
  const std::string text = OpenText(StripSpace(AsUtf8(answer)));
  return StripMathString(text).value_or(text);
}

std::string ExtractPrimeAnswer(const std::string& response) {
  std::string text = AsUtf8(response);
  const auto keep_behind = [&text](std::string_view marker) {
    const size_t at = FindLast(text, marker);
    if (at != std::string::npos) text = StripSpace(text.substr(at + marker.size()));
  };
  const auto keep_before = [&text](std::string_view marker) {
    const size_t at = FindLast(text, marker);
    if (at != std::string::npos) text = StripSpace(text.substr(0, at));
  };
  for (const char* marker : {"answer:", "answer is", "answers are"}) keep_behind(marker);
  for (const char* marker : {"is answer", "is the answer", "are answers", "are the answers"}) {
    keep_before(marker);
  }
  if (const auto box = LastBox(text); box && !box->empty()) text = *box;
  keep_before(". ");
  for (const char* marker :
       {"be ", "is ", "are ", "=", ": ", "get ", "be\n", "is\n", "are\n", ":\n", "get\n"}) {
    keep_behind(marker);
  }
  return text;
}

PrimeVerdict ScorePrimeMath(const std::string& response, const std::string& truth) {
  std::string pred = NormalizePrimeAnswer(ExtractPrimeAnswer(response));
  return {.score = pred == NormalizePrimeAnswer(truth) ? 1.0 : 0.0, .pred = std::move(pred)};
}

namespace {

absl::StatusOr<Scorer> MakePrimeMath(const nlohmann::json&) {
  return Scorer([](const RewardItem& item) {
    PrimeVerdict verdict = ScorePrimeMath(item.response, item.ground_truth);
    return RewardScore{.score = verdict.score, .extras = {}, .prediction = std::move(verdict.pred)};
  });
}

}  // namespace

extern const RewardScorer kPrimeMathScorer = {.make = MakePrimeMath};

}  // namespace tandem
