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

struct Batch {
  size_t rows = 0, width = 0;
  std::vector<float> rewards, mask;
  std::vector<std::string> groups;
  double atol = 0;
};

Batch ReadBatch(const Json& scenario) {
  Batch batch;
  const Json& rewards = scenario.at("token_level_rewards");
  batch.rows = rewards.at("shape").at(0).get<size_t>();
  batch.width = rewards.at("shape").at(1).get<size_t>();
  for (const Json& value : rewards.at("data")) batch.rewards.push_back(value.get<float>());
  for (const Json& value : scenario.at("response_mask").at("data")) {
    batch.mask.push_back(value.get<float>());
  }
  for (const Json& value : scenario.at("uid")) batch.groups.push_back(value.dump());
  batch.atol = scenario.at("atol_hint").get<double>();
  return batch;
}

void CheckGrpo(const GoldenFamily& family, const GoldenCase& c) {
  const Batch batch = ReadBatch(family.Scenario(c));
  const GroupScale scale = c.options.at("norm_adv_by_std_in_grpo").get<bool>()
                               ? GroupScale::kStandardDeviation
                               : GroupScale::kNone;
  std::map<std::string, std::vector<size_t>> members;
  for (size_t row = 0; row < batch.rows; ++row) members[batch.groups[row]].push_back(row);
  std::vector<float> advantages(batch.rows);
  for (const auto& [group, rows] : members) {
    std::vector<float> scores;
    for (const size_t row : rows) {
      double sum = 0;
      for (size_t t = 0; t < batch.width; ++t) sum += batch.rewards[row * batch.width + t];
      scores.push_back(static_cast<float>(sum));
    }
    const std::vector<float> result = GrpoAdvantages(scores, scale);
    for (size_t i = 0; i < rows.size(); ++i) advantages[rows[i]] = result[i];
  }
  const Json& want = c.outputs.at("advantages").at("data");
  for (size_t i = 0; i < want.size(); ++i) {
    const double expected = want[i].get<double>();
    const double got = advantages[i / batch.width] * batch.mask[i];
    INFO("element " << i);
    REQUIRE(std::abs(got - expected) <= batch.atol + 1e-4 * std::abs(expected));
  }
}

}  // namespace

TEST_CASE("GRPO advantages are verl's", "[golden][grpo]") {
  const auto family = testing::ReadGoldenFamily(testing::GoldenDirOrSkip(), "advantages");
  testing::RunGoldenFamily(family, {{"grpo", CheckGrpo}, {"grpo_vectorized", CheckGrpo}});
}

}  // namespace tandem
