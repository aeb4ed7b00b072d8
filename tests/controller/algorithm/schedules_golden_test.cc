// KL coefficients and the KL penalty in the reward against verl's.
#include <catch2/catch.hpp>

#include "common/config/check.h"
#include "common/config/loaded_config.h"
#include "controller/algorithm/kl_penalty.h"
#include "tests/support/golden.h"
#include "tests/support/golden_tensor.h"

namespace tandem {
namespace {

using testing::GoldenCase;
using testing::GoldenDir;
using testing::GoldenFamily;
using testing::GoldenTensor;
using testing::Json;

// What a configuration with a case's options makes of them.
absl::StatusOr<v1::KlCtrl> Configured(const GoldenCase& c) {
  std::vector<std::string> overrides = {"model.path=/m", "data.train_files=[/t.jsonl]",
                                        "cluster.run_dir=/r", "algorithm.use_kl_in_reward=true"};
  for (const char* name : {"type", "kl_coef", "target_kl", "horizon"}) {
    const Json& value = c.options.at(name);
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    overrides.push_back(std::string("algorithm.kl_ctrl.") + name + "=" + text);
  }
  auto loaded = LoadConfig("", overrides);
  if (!loaded.ok()) return loaded.status();
  if (absl::Status checked = CheckConfigValues(*loaded); !checked.ok()) return checked;
  return loaded->config.algorithm().kl_ctrl();
}

void CheckController(const GoldenFamily&, const GoldenCase& c) {
  const auto keys = Configured(c);
  if (c.raises) {
    REQUIRE(absl::IsInvalidArgument(keys.status()));
    return;
  }
  REQUIRE(keys.ok());
  const KlControl control{.adaptive = keys->type() == "adaptive",
                          .target = keys->target_kl(),
                          .horizon = keys->horizon()};
  double coef = keys->kl_coef();
  const Json& values = c.outputs.at("values");
  REQUIRE_FALSE(values.empty());
  for (size_t i = 0; i < values.size(); ++i) {
    coef = NextKlCoef(control, coef, testing::ParseNumber(c.inputs.at("current_kl").at(i)),
                      c.inputs.at("n_steps").at(i).get<int64_t>());
    REQUIRE(testing::IsClose(coef, testing::ParseNumber(values[i]), 1e-12, 0));
  }
}

std::vector<float> Row(const GoldenTensor& tensor, size_t row) {
  const auto width = static_cast<size_t>(tensor.shape.at(1));
  const auto begin = tensor.values.begin() + static_cast<int64_t>(row * width);
  return {begin, begin + static_cast<int64_t>(width)};
}

void CheckPenalty(const GoldenFamily&, const GoldenCase& c) {
  const GoldenTensor mask = testing::ParseTensor(c.inputs.at("response_mask"));
  const GoldenTensor scores = testing::ParseTensor(c.inputs.at("token_level_scores"));
  const GoldenTensor old = testing::ParseTensor(c.inputs.at("old_log_probs"));
  const GoldenTensor ref = testing::ParseTensor(c.inputs.at("ref_log_prob"));
  const auto rows = static_cast<size_t>(mask.shape.at(0));
  std::vector<TokenKl> kl;
  double mean = 0;
  for (size_t row = 0; row < rows; ++row) {
    const auto of_row = KlOfTokens(Row(old, row), Row(ref, row), Row(mask, row),
                                   c.options.at("kl_penalty").get<std::string>());
    REQUIRE(of_row.ok());
    kl.push_back(*of_row);
    mean += of_row->mean / static_cast<double>(rows);
  }
  const KlControl control{.adaptive = true,
                          .target = c.options.at("target_kl").get<double>(),
                          .horizon = c.options.at("horizon").get<double>()};
  double coef = c.options.at("init_kl_coef").get<double>();
  const Json& steps = c.outputs.at("steps");
  REQUIRE(steps.size() == c.options.at("repeats").get<size_t>());
  for (const Json& step : steps) {
    std::vector<float> rewards;
    for (size_t i = 0; i < scores.values.size(); ++i) {
      const auto width = static_cast<size_t>(scores.shape.at(1));
      const float penalty = kl[i / width].penalty[i % width];
      rewards.push_back(static_cast<float>(scores.values[i] - coef * penalty));
    }
    const GoldenTensor wanted = testing::ParseTensor(step.at("token_level_rewards"));
    REQUIRE(testing::CompareValues(rewards, wanted.values, 1e-5, 1e-6) == "");
    const Json& metrics = step.at("metrics");
    REQUIRE(testing::IsClose(mean, testing::ParseNumber(metrics.at("actor/reward_kl_penalty")),
                             1e-5, 1e-6));
    REQUIRE(testing::IsClose(
        coef, testing::ParseNumber(metrics.at("actor/reward_kl_penalty_coeff")), 1e-5, 1e-6));
    coef = NextKlCoef(control, coef, mean, static_cast<int64_t>(rows));
    REQUIRE(testing::IsClose(coef, testing::ParseNumber(step.at("coef_after")), 1e-5, 1e-6));
  }
}

}  // namespace

TEST_CASE("KL coefficients and penalties are the golden ones", "[golden][kl]") {
  testing::RunGoldenFamily(
      testing::ReadGoldenFamily(GoldenDir(), "schedules"),
      {{"kl_controller", CheckController}, {"apply_kl_penalty", CheckPenalty}});
}

}  // namespace tandem
