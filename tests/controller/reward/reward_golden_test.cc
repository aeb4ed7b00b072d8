// Golden family "rewards": gsm8k and the DAPO length penalty.
#include <catch2/catch.hpp>

#include "controller/reward/gsm8k.h"
#include "controller/reward/overlong.h"
#include "tests/support/golden.h"

namespace tandem::testing {
namespace {

// The same checks for the external set and for the one that is committed.
std::filesystem::path GoldenDir() {
#ifdef TANDEM_COMMITTED_GOLDEN
  return CommittedGoldenDir();
#else
  return GoldenDirOrSkip();
#endif
}

void CheckGsm8k(const GoldenFamily&, const GoldenCase& c) {
  const auto method = c.options.at("method").get<std::string>() == "strict"
                          ? Gsm8kMethod::kStrict
                          : Gsm8kMethod::kFlexible;
  const auto solution = c.inputs.at("solution_str").get<std::string>();
  const Json& want = c.outputs.at("extracted");
  const auto got = ExtractGsm8kAnswer(solution, method);
  REQUIRE(got.has_value() == !want.is_null());
  if (got) REQUIRE(*got == want.get<std::string>());
  const double score = ScoreGsm8k(solution, c.inputs.at("ground_truth").get<std::string>(), method,
                                  c.options.at("format_score").get<double>());
  REQUIRE(score == Approx(c.outputs.at("score").get<double>()).margin(1e-6));
}

void CheckOverlong(const GoldenFamily&, const GoldenCase& c) {
  const auto penalty = OverlongPenalty::Create(c.options.at("max_resp_len").get<int64_t>(),
                                               c.options.at("overlong_buffer_len").get<int64_t>(),
                                               c.options.at("penalty_factor").get<double>());
  REQUIRE(penalty.ok() == !c.raises.has_value());
  if (c.raises) return;
  const auto lengths = c.inputs.at("response_lens").get<std::vector<int64_t>>();
  const auto want = c.outputs.at("overlong_reward").get<std::vector<double>>();
  REQUIRE(lengths.size() == want.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    REQUIRE((*penalty)(lengths[i]) == Approx(want[i]).margin(1e-6));
  }
}

}  // namespace

TEST_CASE("Rewards match the golden vectors", "[reward][golden]") {
  const GoldenFamily family = ReadGoldenFamily(GoldenDir(), "rewards");
  RunGoldenFamily(family, {{"gsm8k", &CheckGsm8k}, {"dapo_reward_manager", &CheckOverlong}});
}

}  // namespace tandem::testing
