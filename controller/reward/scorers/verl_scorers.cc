#include "controller/reward/scorers/verl_scorers.h"

#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "controller/reward/scorer_args.h"
#include "controller/reward/scorers/gsm8k.h"
#include "controller/reward/scorers/math_dapo.h"
#include "controller/reward/scorers/math_reward.h"
#include "controller/reward/scorers/prime_math.h"
#include "controller/reward/scorers/search_r1_like_qa_em.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

absl::StatusOr<Scorer> Gsm8k(const Json& args, Gsm8kMethod method) {
  TANDEM_ASSIGN_OR_RETURN(const double format_score, NumberArg(args, "format_score", 0.0));
  return Scorer([=](const RewardItem& item) {
    return RewardScore{.score = ScoreGsm8k(item.response, item.ground_truth, method, format_score),
                       .extras = {},
                       .prediction = ExtractGsm8kAnswer(item.response, method).value_or("")};
  });
}

}  // namespace

absl::StatusOr<Scorer> Gsm8kStrictScorer(const Json& args) {
  return Gsm8k(args, Gsm8kMethod::kStrict);
}

absl::StatusOr<Scorer> Gsm8kFlexibleScorer(const Json& args) {
  return Gsm8k(args, Gsm8kMethod::kFlexible);
}

absl::StatusOr<Scorer> MathRewardScorer(const Json&) {
  return Scorer([](const RewardItem& item) {
    const MathVerdict verdict = ScoreMathReward(item.response, item.ground_truth);
    return RewardScore{
        .score = verdict.score, .extras = {}, .prediction = verdict.pred.value_or("")};
  });
}

absl::StatusOr<Scorer> MathDapoScorer(const Json& args) {
  TANDEM_ASSIGN_OR_RETURN(const bool strict, FlagArg(args, "strict_box_verify", false));
  return Scorer([strict](const RewardItem& item) {
    const DapoVerdict verdict = ScoreMathDapo(item.response, item.ground_truth, strict);
    return RewardScore{.score = verdict.score,
                       .extras = {{"acc", verdict.correct ? 1.0 : 0.0}},
                       .prediction = verdict.pred.value_or("")};
  });
}

absl::StatusOr<Scorer> PrimeMathScorer(const Json&) {
  return Scorer([](const RewardItem& item) {
    PrimeVerdict verdict = ScorePrimeMath(item.response, item.ground_truth);
    return RewardScore{.score = verdict.score, .extras = {}, .prediction = std::move(verdict.pred)};
  });
}

absl::StatusOr<Scorer> SearchR1Scorer(const Json& args) {
  QaOptions options;
  TANDEM_ASSIGN_OR_RETURN(options.format_score, NumberArg(args, "format_score", 0.0));
  TANDEM_ASSIGN_OR_RETURN(options.part, FlagArg(args, "subem", false));
  return Scorer([options](const RewardItem& item) {
    const std::optional<std::string> answer = LastTaggedAnswer(item.response);
    return RewardScore{.score = ScoreSearchQa(item.response, QaTargets(item.ground_truth), options),
                       .extras = {},
                       .prediction = answer ? NormalizeQaAnswer(*answer) : ""};
  });
}

}  // namespace tandem
