#include "controller/reward/scorers/gsm8k.h"

#include "common/base/status.h"
#include "controller/reward/answer_text.h"
#include "controller/reward/scorer_args.h"
#include "controller/reward/scorer_registry.h"

namespace tandem {
namespace {

constexpr int kGsm8kTailCharacters = 300;

bool IsNumberCharacter(char c) { return (c >= '0' && c <= '9') || c == '.' || c == ','; }

// The longest -?[0-9.,]+ at `begin`; empty if there is none.
std::string NumberAt(const std::string& text, size_t begin) {
  size_t end = begin < text.size() && text[begin] == '-' ? begin + 1 : begin;
  const size_t digits = end;
  while (end < text.size() && IsNumberCharacter(text[end])) ++end;
  return end == digits ? "" : text.substr(begin, end - begin);
}

std::optional<std::string> ExtractStrict(const std::string& text) {
  const std::string marker = "#### ";
  for (size_t at = text.rfind(marker); at != std::string::npos; at = text.rfind(marker, at - 1)) {
    std::string answer = NumberAt(text, at + marker.size());
    if (!answer.empty()) {
      std::erase(answer, ',');
      std::erase(answer, '$');
      return answer;
    }
    if (at == 0) break;
  }
  return std::nullopt;
}

std::optional<std::string> ExtractFlexible(const std::string& text) {
  std::optional<std::string> last;
  for (size_t at = 0; at < text.size();) {
    const std::string number = NumberAt(text, at);
    // A lone point usually ends a sentence, so it counts only if there is no other number, as in
    // verl.
    if (!number.empty() && (number != "." || !last)) last = number;
    at += number.empty() ? 1 : number.size();
  }
  return last;
}

}  // namespace

std::optional<std::string> ExtractGsm8kAnswer(const std::string& response, Gsm8kMethod method) {
  const std::string tail = LastCharacters(response, kGsm8kTailCharacters);
  return method == Gsm8kMethod::kStrict ? ExtractStrict(tail) : ExtractFlexible(tail);
}

double ScoreGsm8k(const std::string& response,
                  const std::string& truth,
                  Gsm8kMethod method,
                  double format_score,
                  double score) {
  const std::optional<std::string> answer = ExtractGsm8kAnswer(response, method);
  if (!answer.has_value()) return 0.0;
  return *answer == truth ? score : format_score;
}

namespace {

// Whether an extracted answer can have this form.
bool IsGsm8kAnswer(const std::string& truth) {
  return truth.find_first_of("0123456789") != std::string::npos &&
         truth.find_first_not_of("-.,0123456789") == std::string::npos;
}

absl::StatusOr<Scorer> MakeGsm8k(const nlohmann::json& args, Gsm8kMethod method) {
  TANDEM_ASSIGN_OR_RETURN(const double format_score, NumberArg(args, "format_score", 0.0));
  return Scorer([=](const RewardItem& item) {
    return RewardScore{.score = ScoreGsm8k(item.response, item.ground_truth, method, format_score),
                       .extras = {},
                       .prediction = ExtractGsm8kAnswer(item.response, method).value_or("")};
  });
}

absl::StatusOr<Scorer> MakeGsm8kStrict(const nlohmann::json& args) {
  return MakeGsm8k(args, Gsm8kMethod::kStrict);
}

absl::StatusOr<Scorer> MakeGsm8kFlexible(const nlohmann::json& args) {
  return MakeGsm8k(args, Gsm8kMethod::kFlexible);
}

constexpr std::string_view kGsm8kArgs[] = {"format_score"};
constexpr std::string_view kGsm8kSources[] = {"openai/gsm8k"};

}  // namespace

extern const RewardScorer kGsm8kStrictScorer = {.args = kGsm8kArgs,
                                                .data_sources = kGsm8kSources,
                                                .accepts_truth = IsGsm8kAnswer,
                                                .truth = "a number",
                                                .make = MakeGsm8kStrict};

extern const RewardScorer kGsm8kFlexibleScorer = {.args = kGsm8kArgs,
                                                  .accepts_truth = IsGsm8kAnswer,
                                                  .truth = "a number",
                                                  .make = MakeGsm8kFlexible};

}  // namespace tandem
