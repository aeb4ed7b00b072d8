// Advantages and returns against verl's, masked positions included.
#include <catch2/catch.hpp>

#include "controller/algorithm/advantage_batch.h"
#include "tests/support/golden.h"
#include "tests/support/golden_tensor.h"

namespace tandem {
namespace {

using testing::GoldenCase;
using testing::GoldenDir;
using testing::GoldenFamily;
using testing::GoldenTensor;
using testing::Json;

// A padded batch, whose rows are responses as wide as the batch.
struct GoldenBatch {
  size_t width = 0;
  std::vector<AdvantageRow> rows;
  std::map<std::string, std::vector<size_t>> groups;  // of rows, ascending
};

std::vector<float> RowOf(const std::vector<float>& values, size_t row, size_t width) {
  const auto begin = values.begin() + static_cast<int64_t>(row * width);
  return {begin, begin + static_cast<int64_t>(width)};
}

GoldenBatch MakeBatch(const Json& mask_json, const Json& groups) {
  const GoldenTensor mask = testing::ParseTensor(mask_json);
  GoldenBatch batch{.width = static_cast<size_t>(mask.shape.at(1))};
  for (size_t i = 0; i < groups.size(); ++i) {
    AdvantageRow row{.sample_id = i, .tokens = mask.shape.at(1)};
    row.mask = RowOf(mask.Floats(), i, batch.width);
    row.trained = std::count(row.mask.begin(), row.mask.end(), 1.0f);
    batch.rows.push_back(std::move(row));
    batch.groups[groups[i].dump()].push_back(i);
  }
  return batch;
}

// Sums in double: the scenario's hint covers fp32.
void SetRewards(GoldenBatch& batch, const Json& rewards) {
  const std::vector<float> values = testing::ParseTensor(rewards).Floats();
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    AdvantageRow& row = batch.rows[i];
    row.rewards = RowOf(values, i, batch.width);
    double sum = 0;
    for (const float reward : row.rewards) sum += reward;
    row.score = static_cast<float>(sum);
  }
}

void SetArray(GoldenBatch& batch, const Json& json, std::vector<float> AdvantageRow::*field) {
  const std::vector<float> values = testing::ParseTensor(json).Floats();
  for (size_t i = 0; i < batch.rows.size(); ++i) {
    batch.rows[i].*field = RowOf(values, i, batch.width);
  }
}

AdvantageOptions EstimatorOptionsOf(const GoldenCase& c) {
  AdvantageOptions options;
  const Json& given = c.options;
  if (given.contains("epsilon")) options.epsilon = given.at("epsilon").get<double>();
  options.by_std = given.value("norm_adv_by_std_in_grpo", true);
  options.gamma = given.value("gamma", 1.0);
  if (given.contains("handle_zero_tail")) options.handle_zero_tail = given.at("handle_zero_tail");
  if (given.contains("gdpo_reward_weights") && !given.at("gdpo_reward_weights").is_null()) {
    options.component_weights = given.at("gdpo_reward_weights").get<std::vector<double>>();
  }
  return options;
}

struct EstimatedBatch {
  std::vector<double> advantages, returns;
};

void Place(const AdvantageRow& row, const RowAdvantage& result, size_t width, EstimatedBatch& all) {
  for (size_t t = 0; t < width; ++t) {
    const size_t at = row.sample_id * width + t;
    all.advantages[at] = result.tokens.empty() ? result.value * row.mask[t] : result.tokens[t];
    all.returns[at] = result.returns.empty() ? all.advantages[at] : result.returns[t];
  }
}

absl::StatusOr<EstimatedBatch> Run(const GoldenCase& c, const GoldenBatch& batch) {
  const auto estimator = FindAdvantageEstimator(c.fn);
  if (!estimator.ok()) return estimator.status();
  AdvantageBatch step(*estimator, EstimatorOptionsOf(c));
  std::vector<AdvantageGroup> groups;
  for (const auto& [name, rows] : batch.groups) {
    groups.emplace_back();
    for (const size_t row : rows) groups.back().push_back(batch.rows[row]);
  }
  for (const AdvantageRow& row : batch.rows) step.AddScore(row.score);
  if (step.whitens()) {
    for (const AdvantageGroup& group : groups) {
      if (const auto status = step.Observe(group); !status.ok()) return status;
    }
    if (const auto status = step.FinishObserving(); !status.ok()) return status;
  }
  const size_t size = batch.rows.size() * batch.width;
  EstimatedBatch all{std::vector<double>(size), std::vector<double>(size)};
  for (const AdvantageGroup& group : groups) {
    const auto results = step.Compute(group);
    if (!results.ok()) return results.status();
    for (size_t i = 0; i < group.size(); ++i) Place(group[i], (*results)[i], batch.width, all);
  }
  return all;
}

void RequireDoubles(const Json& outputs,
                    const char* name,
                    const std::vector<double>& got,
                    double atol) {
  if (!outputs.contains(name)) return;
  const Json& want = outputs.at(name);
  const Json& tensor = want == "same as advantages" ? outputs.at("advantages") : want;
  INFO(name);
  REQUIRE(testing::CompareValues(got, testing::ParseTensor(tensor).values, 1e-4, atol) == "");
}

void RequireOutputs(const GoldenCase& c, const GoldenBatch& batch, double atol) {
  const auto result = Run(c, batch);
  if (c.raises) {
    REQUIRE_FALSE(result.ok());
    return;
  }
  INFO(result.status().ToString());
  REQUIRE(result.ok());
  REQUIRE(c.outputs.contains("advantages"));
  RequireDoubles(c.outputs, "advantages", result->advantages, atol);
  RequireDoubles(c.outputs, "returns", result->returns, atol);
}

void CheckScenario(const GoldenFamily& family, const GoldenCase& c) {
  const Json& scenario = family.Scenario(c);
  GoldenBatch batch = MakeBatch(scenario.at("response_mask"), scenario.at("uid"));
  SetRewards(batch, scenario.at("token_level_rewards"));
  const AdvantageNeeds needs = FindAdvantageEstimator(c.fn)->needs;
  if (needs.policy) {
    SetArray(batch, scenario.at("old_log_probs"), &AdvantageRow::log_probs);
    SetArray(batch, scenario.at("sum_pi_squared"), &AdvantageRow::sum_pi_squared);
    if (c.options.at("use_rollout_is_weights")) {
      SetArray(batch, scenario.at("rollout_is_weights"), &AdvantageRow::is_weights);
    }
  }
  if (needs.baseline) {
    const GoldenTensor baselines = testing::ParseTensor(scenario.at("reward_baselines"));
    for (size_t i = 0; i < batch.rows.size(); ++i) batch.rows[i].baseline = baselines.values[i];
  }
  RequireOutputs(c, batch, scenario.at("atol_hint").get<double>());
}

void CheckGdpo(const GoldenFamily&, const GoldenCase& c) {
  GoldenBatch batch = MakeBatch(c.inputs.at("response_mask"), c.inputs.at("uid"));
  for (const Json& key : c.options.at("gdpo_reward_keys")) {
    const Json& component = c.inputs.at("components").at(key.get<std::string>());
    const std::vector<float> values = testing::ParseTensor(component).Floats();
    for (size_t i = 0; i < batch.rows.size(); ++i) batch.rows[i].components.push_back(values[i]);
  }
  RequireOutputs(c, batch, 1e-5);
}

}  // namespace

TEST_CASE("advantages and returns are the golden ones", "[golden][advantages]") {
  std::map<std::string, testing::GoldenCheck> checks;
  for (const std::string& name : AdvantageEstimatorNames()) checks[name] = CheckScenario;
  checks["gdpo"] = CheckGdpo;
  testing::RunGoldenFamily(testing::ReadGoldenFamily(GoldenDir(), "advantages"), checks);
}

}  // namespace tandem
