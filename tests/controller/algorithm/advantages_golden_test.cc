// Advantages against verl's: per response, spread over its tokens.
#include <catch2/catch.hpp>

#include "controller/algorithm/grpo_advantage.h"
#include "tests/support/golden.h"
#include "tests/support/golden_tensor.h"

namespace tandem {
namespace {

using testing::GoldenCase;
using testing::GoldenFamily;
using testing::Json;

using testing::GoldenTensor;

// The same checks for the external set and for the one that is committed.
std::filesystem::path GoldenDir() {
#ifdef TANDEM_COMMITTED_GOLDEN
  return testing::CommittedGoldenDir();
#else
  return testing::GoldenDirOrSkip();
#endif
}

// Sums of token rewards over all positions, by rows of one group.
std::map<std::string, std::vector<size_t>> RowsByGroup(const Json& groups) {
  std::map<std::string, std::vector<size_t>> rows;
  for (size_t row = 0; row < groups.size(); ++row) rows[groups[row].dump()].push_back(row);
  return rows;
}

std::vector<float> ScoresOf(const GoldenTensor& rewards) {
  const size_t width = static_cast<size_t>(rewards.shape.at(1));
  std::vector<float> scores;
  for (size_t begin = 0; begin < rewards.values.size(); begin += width) {
    double sum = 0;
    for (size_t t = 0; t < width; ++t) sum += rewards.values[begin + t];
    scores.push_back(static_cast<float>(sum));
  }
  return scores;
}

void RequireTensor(const Json& outputs,
                   const char* name,
                   const std::vector<double>& got,
                   double atol) {
  INFO(name);
  if (outputs.at(name) == "same as advantages") return;
  REQUIRE(testing::CompareValues(got, testing::ParseTensor(outputs.at(name)).values, 1e-4, atol) ==
          "");
}

void CheckGrpo(const GoldenFamily& family, const GoldenCase& c) {
  const Json& scenario = family.Scenario(c);
  const GoldenTensor rewards = testing::ParseTensor(scenario.at("token_level_rewards"));
  const GoldenTensor mask = testing::ParseTensor(scenario.at("response_mask"));
  REQUIRE(rewards.shape == mask.shape);
  const GroupScale scale = c.options.at("norm_adv_by_std_in_grpo").get<bool>()
                               ? GroupScale::kStandardDeviation
                               : GroupScale::kNone;
  const std::vector<float> scores = ScoresOf(rewards);
  std::vector<double> by_row(scores.size());
  for (const auto& [group, rows] : RowsByGroup(scenario.at("uid"))) {
    std::vector<float> of_group;
    for (const size_t row : rows) of_group.push_back(scores[row]);
    const std::vector<float> result = GrpoAdvantages(of_group, scale);
    for (size_t i = 0; i < rows.size(); ++i) by_row[rows[i]] = result[i];
  }
  std::vector<double> advantages;
  for (const double keep : mask.values) {
    const size_t row = advantages.size() / static_cast<size_t>(mask.shape.at(1));
    advantages.push_back(by_row[row] * keep);
  }
  const double atol = scenario.at("atol_hint").get<double>();
  RequireTensor(c.outputs, "advantages", advantages, atol);
  RequireTensor(c.outputs, "returns", advantages, atol);
}

}  // namespace

TEST_CASE("GRPO advantages are the golden ones", "[golden][grpo]") {
  testing::RunGoldenFamily(testing::ReadGoldenFamily(GoldenDir(), "advantages"),
                           {{"grpo", CheckGrpo}, {"grpo_vectorized", CheckGrpo}});
}

}  // namespace tandem
