// Terms for reward.terms, which use the response alone. format: 1 if the response matches a
// pattern, else 0. length: the penalty of overlong.h, at most 0.
#include <cstdint>

#include "common/base/status.h"
#include "controller/reward/overlong.h"
#include "controller/reward/scorer_args.h"
#include "controller/reward/scorer_registry.h"

namespace tandem {
namespace {

RewardScore TermScore(double value) { return {.score = value, .extras = {}}; }

absl::StatusOr<Scorer> MakeFormat(const nlohmann::json& args) {
  TANDEM_ASSIGN_OR_RETURN(const auto pattern, PatternArg(args));
  return Scorer([pattern](const RewardItem& item) {
    return TermScore(pattern->LastCapture(item.response).has_value() ? 1.0 : 0.0);
  });
}

absl::StatusOr<Scorer> MakeLength(const nlohmann::json& args) {
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
  return Scorer([penalty = *penalty](const RewardItem& item) {
    return TermScore(penalty(item.response_tokens));
  });
}

constexpr std::string_view kFormatArgs[] = {"pattern"};
constexpr std::string_view kLengthArgs[] = {"max_tokens", "buffer_tokens", "factor"};

}  // namespace

extern const RewardScorer kFormatTerm = {.args = kFormatArgs, .make = MakeFormat};

extern const RewardScorer kLengthTerm = {.args = kLengthArgs, .make = MakeLength};

}  // namespace tandem
