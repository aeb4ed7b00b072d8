#include "controller/reward/scorers/math_reward.h"

#include <algorithm>
#include <string_view>

#include "controller/reward/boxed_answer.h"
#include "controller/reward/scorers/math_strip.h"

namespace tandem {
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

}  // namespace tandem
