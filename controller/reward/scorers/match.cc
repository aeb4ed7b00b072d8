#include "controller/reward/scorers/match.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "controller/reward/answer_text.h"
#include "controller/reward/overlong.h"
#include "controller/reward/scorer_args.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

RewardScore MatchVerdict(bool right, std::optional<std::string> answer) {
  return {.score = right ? 1.0 : 0.0, .extras = {}, .prediction = std::move(answer).value_or("")};
}

RewardScore Term(double value) { return {.score = value, .extras = {}}; }

}  // namespace

absl::StatusOr<Scorer> ExactScorer(const Json&) {
  return Scorer([](const RewardItem& item) {
    return MatchVerdict(ExactMatch(item.response, item.ground_truth),
                        StripSpace(AsUtf8(item.response)));
  });
}

absl::StatusOr<Scorer> NumberScorer(const Json& args) {
  TANDEM_ASSIGN_OR_RETURN(const double tolerance, NumberArg(args, "tolerance", 1e-9));
  return Scorer([tolerance](const RewardItem& item) {
    const auto answer = LastNumber(item.response), truth = WholeNumber(item.ground_truth);
    const bool right = answer && truth && std::abs(*answer - *truth) <= tolerance;
    return MatchVerdict(right, answer ? std::optional(fmt::format("{}", *answer)) : std::nullopt);
  });
}

absl::StatusOr<Scorer> FirstIntegerScorer(const Json&) {
  return Scorer([](const RewardItem& item) {
    auto answer = FirstInteger(item.response);
    const bool right = answer && IntegersEqual(*answer, item.ground_truth);
    return MatchVerdict(right, std::move(answer));
  });
}

absl::StatusOr<Scorer> LastIntegerScorer(const Json&) {
  return Scorer([](const RewardItem& item) {
    auto answer = LastInteger(item.response);
    const bool right = answer && IntegersEqual(*answer, item.ground_truth);
    return MatchVerdict(right, std::move(answer));
  });
}

// The first group of the pattern (or the whole match) must equal the ground truth.
absl::StatusOr<Scorer> RegexScorer(const Json& args) {
  TANDEM_ASSIGN_OR_RETURN(const auto pattern, PatternArg(args));
  return Scorer([pattern](const RewardItem& item) {
    auto found = pattern->LastCapture(item.response);
    const bool right = found && ExactMatch(*found, item.ground_truth);
    return MatchVerdict(right, std::move(found));
  });
}

absl::StatusOr<Scorer> FormatScorer(const Json& args) {
  TANDEM_ASSIGN_OR_RETURN(const auto pattern, PatternArg(args));
  return Scorer([pattern](const RewardItem& item) {
    return Term(pattern->LastCapture(item.response).has_value() ? 1.0 : 0.0);
  });
}

absl::StatusOr<Scorer> LengthScorer(const Json& args) {
  TANDEM_ASSIGN_OR_RETURN(const double max_tokens, NumberArg(args, "max_tokens", 0));
  TANDEM_ASSIGN_OR_RETURN(const double buffer, NumberArg(args, "buffer_tokens", 0));
  TANDEM_ASSIGN_OR_RETURN(const double factor, NumberArg(args, "factor", 1));
  const auto penalty = OverlongPenalty::Create(static_cast<int64_t>(max_tokens),
                                               static_cast<int64_t>(buffer), factor);
  if (!penalty.ok()) {
    return Annotate(penalty.status(),
                    "the arguments are max_tokens, of the longest response, buffer_tokens before "
                    "that, and factor (1), such as {max_tokens: 512, buffer_tokens: 128}");
  }
  return Scorer(
      [penalty = *penalty](const RewardItem& item) { return Term(penalty(item.response_tokens)); });
}

}  // namespace tandem
