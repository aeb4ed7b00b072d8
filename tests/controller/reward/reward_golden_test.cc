// Golden family "rewards": verl's scorers, their normal forms and the DAPO length penalty.
#include <cmath>

#include <catch2/catch.hpp>

#include "controller/reward/overlong.h"
#include "controller/reward/scorers/gsm8k.h"
#include "controller/reward/scorers/math_dapo.h"
#include "controller/reward/scorers/math_reward.h"
#include "controller/reward/scorers/prime_math.h"
#include "controller/reward/scorers/search_r1_like_qa_em.h"
#include "tests/support/golden.h"

namespace tandem::testing {
namespace {

std::string InputText(const GoldenCase& c, const char* name) {
  return c.inputs.at(name).get<std::string>();
}

void RequireText(const std::optional<std::string>& got, const Json& want) {
  REQUIRE(got.has_value() == !want.is_null());
  if (got) REQUIRE(*got == want.get<std::string>());
}

bool Close(double got, double want) { return std::abs(got - want) <= 1e-6; }

double Option(const GoldenCase& c, const char* name, double fallback) {
  return c.options.contains(name) ? c.options.at(name).get<double>() : fallback;
}

void CheckGsm8k(const GoldenFamily&, const GoldenCase& c) {
  const auto method = c.options.at("method").get<std::string>() == "strict"
                          ? Gsm8kMethod::kStrict
                          : Gsm8kMethod::kFlexible;
  RequireText(ExtractGsm8kAnswer(InputText(c, "solution_str"), method), c.outputs.at("extracted"));
  const double score = ScoreGsm8k(InputText(c, "solution_str"), InputText(c, "ground_truth"),
                                  method, Option(c, "format_score", 0), Option(c, "score", 1));
  REQUIRE(Close(score, c.outputs.at("score").get<double>()));
}

void CheckMathReward(const GoldenFamily&, const GoldenCase& c) {
  RequireText(LastBoxCommand(InputText(c, "solution_str")), c.outputs.at("last_boxed"));
  const MathVerdict got =
      ScoreMathReward(InputText(c, "solution_str"), InputText(c, "ground_truth"));
  REQUIRE(got.score == c.outputs.at("score").get<double>());
}

void CheckStripString(const GoldenFamily&, const GoldenCase& c) {
  const auto got = StripMathString(InputText(c, "text"));
  REQUIRE(got.has_value() == !c.raises.has_value());
  if (got) REQUIRE(*got == c.outputs.at("value").get<std::string>());
}

void CheckMathDapo(const GoldenFamily&, const GoldenCase& c) {
  const bool strict = c.options.at("strict_box_verify").get<bool>();
  const DapoVerdict got =
      ScoreMathDapo(InputText(c, "solution_str"), InputText(c, "ground_truth"), strict);
  REQUIRE(got.score == c.outputs.at("score").get<double>());
  REQUIRE(got.correct == c.outputs.at("acc").get<bool>());
  RequireText(got.pred, c.outputs.at("pred"));
}

void CheckNormalizeFinal(const GoldenFamily&, const GoldenCase& c) {
  REQUIRE(NormalizeFinalAnswer(InputText(c, "text")) == c.outputs.at("value").get<std::string>());
}

void CheckNormalizePrime(const GoldenFamily&, const GoldenCase& c) {
  REQUIRE(NormalizePrimeAnswer(InputText(c, "text")) == c.outputs.at("value").get<std::string>());
}

void CheckSearch(const GoldenFamily&, const GoldenCase& c) {
  const std::string response = InputText(c, "solution_str");
  const auto targets = c.inputs.at("targets").get<std::vector<std::string>>();
  RequireText(LastTaggedAnswer(response), c.outputs.at("extracted"));
  REQUIRE(NormalizeQaAnswer(response) == c.outputs.at("normalized").get<std::string>());
  const auto each = [&](const char* name, auto matches) {
    if (!c.outputs.contains(name)) return;
    const auto want = c.outputs.at(name).get<std::vector<int>>();
    REQUIRE(want.size() == targets.size());
    for (size_t i = 0; i < want.size(); ++i) {
      REQUIRE(matches(response, std::vector{targets[i]}) == (want[i] != 0));
    }
  };
  each("em", &MatchesTarget);
  each("subem", &ContainsTarget);
  QaOptions options{.format_score = Option(c, "format_score", 0), .score = Option(c, "score", 1)};
  for (const char* name : {"score", "score_subem"}) {
    options.part = std::string(name) == "score_subem";
    if (!c.outputs.contains(name)) continue;
    REQUIRE(Close(ScoreSearchQa(response, targets, options), c.outputs.at(name).get<double>()));
  }
}

// The score on the last token of every response, and the penalty in it.
void CheckOverlong(const GoldenFamily&, const GoldenCase& c) {
  const bool enable = c.options.value("enable", true);
  const Json longest = c.options.value("max_resp_len", Json());  // null: none was given
  const auto created = OverlongPenalty::Create(longest.is_null() ? 0 : longest.get<int64_t>(),
                                               c.options.at("overlong_buffer_len").get<int64_t>(),
                                               c.options.at("penalty_factor").get<double>());
  if (enable) REQUIRE(created.ok() == !c.raises.has_value());
  if (c.raises) return;
  const auto lengths = c.inputs.at("response_lens").get<std::vector<int64_t>>();
  const auto base = c.inputs.at("base_score").get<std::vector<double>>();
  std::map<std::pair<int64_t, int64_t>, double> scores;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const double penalty = enable ? (*created)(lengths[i]) : 0.0;
    scores[{static_cast<int64_t>(i), lengths[i] - 1}] = base[i] + penalty;
    if (!enable) continue;
    REQUIRE(Close(penalty, c.outputs.at("overlong_reward")[i].get<double>()));
    REQUIRE((penalty < 0) == c.outputs.at("overlong")[i].get<bool>());
  }
  if (!c.outputs.contains("nonzero")) return;
  std::erase_if(scores, [](const auto& entry) { return Close(entry.second, 0); });
  REQUIRE(scores.size() == c.outputs.at("nonzero").size());
  for (const Json& want : c.outputs.at("nonzero")) {
    const int64_t row = want[0].get<int64_t>();
    // verl puts the reward of an empty response into the last column of its padding.
    const bool empty = lengths.at(static_cast<size_t>(row)) == 0;
    const auto got = scores.find({row, empty ? -1 : want[1].get<int64_t>()});
    REQUIRE(got != scores.end());
    REQUIRE(Close(got->second, want[2].get<double>()));
  }
}

}  // namespace

TEST_CASE("Rewards match the golden vectors", "[reward][golden]") {
  const GoldenFamily family = ReadGoldenFamily(GoldenDir(), "rewards");
  RunGoldenFamily(family, {{"gsm8k", &CheckGsm8k},
                           {"math_reward", &CheckMathReward},
                           {"math_reward.strip_string", &CheckStripString},
                           {"math_dapo", &CheckMathDapo},
                           {"math_dapo.normalize_final_answer", &CheckNormalizeFinal},
                           {"prime_math.normalize_answer", &CheckNormalizePrime},
                           {"search_r1_like_qa_em", &CheckSearch},
                           {"dapo_reward_manager", &CheckOverlong}});
}

}  // namespace tandem::testing
