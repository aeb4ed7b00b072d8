// Reward functions for any data: compare the response, a number in it, or the match of a pattern
// with the ground truth. The score is 1 if they are equal, else 0.
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "common/base/status.h"
#include "controller/reward/answer_text.h"
#include "controller/reward/scorer_args.h"
#include "controller/reward/scorer_registry.h"

namespace tandem {
namespace {

RewardScore MatchVerdict(bool right, std::optional<std::string> answer) {
  return {.score = right ? 1.0 : 0.0, .extras = {}, .prediction = std::move(answer).value_or("")};
}

absl::StatusOr<Scorer> MakeExact(const nlohmann::json&) {
  return Scorer([](const RewardItem& item) {
    return MatchVerdict(ExactMatch(item.response, item.ground_truth),
                        StripSpace(AsUtf8(item.response)));
  });
}

absl::StatusOr<Scorer> MakeNumber(const nlohmann::json& args) {
  TANDEM_ASSIGN_OR_RETURN(const double tolerance, NumberArg(args, "tolerance", 1e-9));
  return Scorer([tolerance](const RewardItem& item) {
    const auto answer = LastNumber(item.response), truth = WholeNumber(item.ground_truth);
    const bool right = answer && truth && std::abs(*answer - *truth) <= tolerance;
    return MatchVerdict(right, answer ? std::optional(fmt::format("{}", *answer)) : std::nullopt);
  });
}

absl::StatusOr<Scorer> MakeFirstInteger(const nlohmann::json&) {
  return Scorer([](const RewardItem& item) {
    auto answer = FirstInteger(item.response);
    const bool right = answer && IntegersEqual(*answer, item.ground_truth);
    return MatchVerdict(right, std::move(answer));
  });
}

absl::StatusOr<Scorer> MakeLastInteger(const nlohmann::json&) {
  return Scorer([](const RewardItem& item) {
    auto answer = LastInteger(item.response);
    const bool right = answer && IntegersEqual(*answer, item.ground_truth);
    return MatchVerdict(right, std::move(answer));
  });
}

// The first group of the pattern (or its complete match) must equal the ground truth.
absl::StatusOr<Scorer> MakeRegex(const nlohmann::json& args) {
  TANDEM_ASSIGN_OR_RETURN(const auto pattern, PatternArg(args));
  return Scorer([pattern](const RewardItem& item) {
    auto found = pattern->LastCapture(item.response);
    const bool right = found && ExactMatch(*found, item.ground_truth);
    return MatchVerdict(right, std::move(found));
  });
}

bool IsNumber(const std::string& truth) { return WholeNumber(truth).has_value(); }
bool IsInteger(const std::string& truth) { return IntegersEqual(truth, truth); }

constexpr std::string_view kNumberArgs[] = {"tolerance"};
constexpr std::string_view kRegexArgs[] = {"pattern"};
constexpr std::string_view kAdditionSources[] = {"tandem/addition"};

}  // namespace

extern const RewardScorer kExactScorer = {.make = MakeExact};

extern const RewardScorer kNumberScorer = {
    .args = kNumberArgs, .accepts_truth = IsNumber, .truth = "a number", .make = MakeNumber};

extern const RewardScorer kFirstIntegerScorer = {
    .accepts_truth = IsInteger, .truth = "an integer", .make = MakeFirstInteger};

extern const RewardScorer kLastIntegerScorer = {.data_sources = kAdditionSources,
                                                .accepts_truth = IsInteger,
                                                .truth = "an integer",
                                                .make = MakeLastInteger};

extern const RewardScorer kRegexScorer = {.args = kRegexArgs, .make = MakeRegex};

}  // namespace tandem
