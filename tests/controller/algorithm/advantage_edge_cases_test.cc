// Estimators where there is hardly anything to estimate from, against what verl 0.9.1's functions
// give.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/controller/algorithm/advantage_rows.h"

namespace tandem {
namespace {

constexpr double kNaN = NAN;

struct EdgeCase {
  std::string name;
  std::vector<AdvantageGroup> groups;
  // By estimator, the advantages that verl gives, of three tokens a response; none: it raises.
  std::map<std::string, std::vector<double>> verl;
};

// With what every estimator reads, as it was given to verl.
AdvantageRow EdgeRow(uint64_t id, std::vector<float> rewards, std::vector<float> mask) {
  AdvantageRow row = testing::Row(id, std::move(rewards), std::move(mask));
  row.baseline = 0.5;
  row.components = {row.score};
  row.log_probs.assign(row.rewards.size(), -1.0f);
  row.sum_pi_squared.assign(row.rewards.size(), 0.3f);
  return row;
}

// The numbers are verl's.
std::vector<EdgeCase> EdgeCases() {
  return {{"a batch of one response",
           {{EdgeRow(0, {0, 0, 2}, {1, 1, 1})}},
           {{"gdpo", {0, 0, 0}},
            {"gpg", {2, 2, 2}},
            {"grpo", {1.999998, 1.999998, 1.999998}},
            {"grpo_passk", {}},
            {"grpo_vectorized", {1.999998, 1.999998, 1.999998}},
            {"opo", {2, 2, 2}},
            {"optimal_token_baseline", {2, 2, 2}},
            {"reinforce_plus_plus", {0, 0, 0}},
            {"reinforce_plus_plus_baseline", {0, 0, 0}},
            {"remax", {1.5, 1.5, 1.5}},
            {"rloo", {2, 2, 2}},
            {"rloo_vectorized", {0, 0, 0}},
            {"tir_optimal_token_baseline", {2, 2, 2}}}},
          {"a batch of one token",
           {{EdgeRow(0, {2, 0, 0}, {1, 0, 0})}},
           {{"gdpo", {}},
            {"gpg", {2, 0, 0}},
            {"grpo", {1.999998, 0, 0}},
            {"grpo_passk", {}},
            {"grpo_vectorized", {1.999998, 0, 0}},
            {"opo", {2, 0, 0}},
            {"optimal_token_baseline", {2, 0, 0}},
            {"reinforce_plus_plus", {}},
            {"reinforce_plus_plus_baseline", {}},
            {"remax", {1.5, 0, 0}},
            {"rloo", {2, 0, 0}},
            {"rloo_vectorized", {0, 0, 0}},
            {"tir_optimal_token_baseline", {2, 0, 0}}}},
          {"a batch of one response without trained tokens",
           {{EdgeRow(0, {0, 0, 2}, {0, 0, 0})}},
           {{"gdpo", {}},
            {"gpg", {0, 0, 0}},
            {"grpo", {0, 0, 0}},
            {"grpo_passk", {}},
            {"grpo_vectorized", {0, 0, 0}},
            {"opo", {0, 0, 0}},
            {"optimal_token_baseline", {0, 0, 0}},
            {"reinforce_plus_plus", {}},
            {"reinforce_plus_plus_baseline", {}},
            {"remax", {0, 0, 0}},
            {"rloo", {0, 0, 0}},
            {"rloo_vectorized", {0, 0, 0}},
            {"tir_optimal_token_baseline", {0, 0, 0}}}},
          {"groups of one",
           {{EdgeRow(0, {0, 0, 2}, {1, 1, 1})}, {EdgeRow(1, {0, -1, 0}, {1, 1, 0})}},
           {{"gdpo", {0.7302967, 0.7302967, 0.7302967, -1.095445, -1.095445, 0}},
            {"gpg", {2, 2, 2, -1, -1, 0}},
            {"grpo", {1.999998, 1.999998, 1.999998, -0.999999, -0.999999, 0}},
            {"grpo_passk", {}},
            {"grpo_vectorized", {1.999998, 1.999998, 1.999998, -0.999999, -0.999999, 0}},
            {"opo", {2, 2, 2, -1, -1, 0}},
            {"optimal_token_baseline", {2, 2, 2, -1, -1, 0}},
            {"reinforce_plus_plus", {0.7302968, 0.7302968, 0.7302968, -1.095445, -1.095445, 0}},
            {"reinforce_plus_plus_baseline",
             {0.7302968, 0.7302968, 0.7302968, -1.095445, -1.095445, 0}},
            {"remax", {1.5, 1.5, 1.5, -1.5, -1.5, 0}},
            {"rloo", {2, 2, 2, -1, -1, 0}},
            {"rloo_vectorized", {0, 0, 0, 0, 0, 0}},
            {"tir_optimal_token_baseline", {2, 2, 2, -1, -1, 0}}}},
          {"a response without trained tokens in a group",
           {{EdgeRow(0, {0, 0, 2}, {0, 0, 0}), EdgeRow(1, {0, -1, 0}, {1, 1, 0})}},
           {{"gdpo", {0, 0, 0, 0, 0, 0}},
            {"gpg", {0, 0, 0, -1.5, -1.5, 0}},
            {"grpo", {0, 0, 0, -0.7071065, -0.7071065, 0}},
            {"grpo_passk", {0, 0, 0, 0, 0, 0}},
            {"grpo_vectorized", {0, 0, 0, -0.7071065, -0.7071065, 0}},
            {"opo", {0, 0, 0, 0, 0, 0}},
            {"optimal_token_baseline", {0, 0, 0, -1, -1, 0}},
            {"reinforce_plus_plus", {0, 0, 0, 0, 0, 0}},
            {"reinforce_plus_plus_baseline", {0, 0, 0, 0, 0, 0}},
            {"remax", {0, 0, 0, -1.5, -1.5, 0}},
            {"rloo", {0, 0, 0, -3, -3, 0}},
            {"rloo_vectorized", {0, 0, 0, -3, -3, 0}},
            {"tir_optimal_token_baseline", {0, 0, 0, -1, -1, 0}}}},
          {"a group without trained tokens beside another",
           {{EdgeRow(0, {0, 0, 2}, {0, 0, 0}), EdgeRow(1, {0, -1, 0}, {0, 0, 0})},
            {EdgeRow(2, {0, 3, 0}, {1, 1, 0}), EdgeRow(3, {1, 0, 0}, {1, 0, 0})}},
           {{"gdpo", {0, 0, 0, 0, 0, 0, 0.5773503, 0.5773503, 0, -1.154701, 0, 0}},
            {"gpg", {0, 0, 0, 0, 0, 0, 1, 1, 0, -1, 0, 0}},
            {"grpo", {0, 0, 0, 0, 0, 0, 0.7071063, 0.7071063, 0, -0.7071063, 0, 0}},
            {"grpo_passk", {0, 0, 0, 0, 0, 0, 1.414213, 1.414213, 0, 0, 0, 0}},
            {"grpo_vectorized", {0, 0, 0, 0, 0, 0, 0.7071063, 0.7071063, 0, -0.7071063, 0, 0}},
            {"opo", {kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, 0.6666667, 0.6666667, 0, -1.333333, 0, 0}},
            {"optimal_token_baseline", {0, 0, 0, 0, 0, 0, 1, 3, 0, -1, 0, 0}},
            {"reinforce_plus_plus", {0, 0, 0, 0, 0, 0, 0.5773504, 0.5773504, 0, -1.154701, 0, 0}},
            {"reinforce_plus_plus_baseline",
             {0, 0, 0, 0, 0, 0, 0.5773503, 0.5773503, 0, -1.154701, 0, 0}},
            {"remax", {0, 0, 0, 0, 0, 0, 2.5, 2.5, 0, 0.5, 0, 0}},
            {"rloo", {0, 0, 0, 0, 0, 0, 2, 2, 0, -2, 0, 0}},
            {"rloo_vectorized", {0, 0, 0, 0, 0, 0, 2, 2, 0, -2, 0, 0}},
            {"tir_optimal_token_baseline", {0, 0, 0, 0, 0, 0, 1, 3, 0, -1, 0, 0}}}}};
}

void RequireAsVerl(const std::vector<AdvantageGroup>& groups,
                   const std::vector<std::vector<RowAdvantage>>& results,
                   const std::vector<double>& verl) {
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t i = 0; i < groups[g].size(); ++i) {
      const AdvantageRow& row = groups[g][i];
      const RowAdvantage& result = results[g][i];
      for (size_t t = 0; t < row.mask.size(); ++t) {
        const double want = verl.at(row.sample_id * row.mask.size() + t);
        const double got = result.tokens.empty() ? result.value * row.mask[t] : result.tokens[t];
        INFO("response " << row.sample_id << ", token " << t);
        REQUIRE(std::isnan(got) == std::isnan(want));
        if (!std::isnan(want)) REQUIRE(got == Approx(want).margin(1e-6));
      }
    }
  }
}

}  // namespace

TEST_CASE("Small batches and masks that select nothing give what verl gives", "[advantages]") {
  for (const EdgeCase& edge : EdgeCases()) {
    for (const std::string& name : AdvantageEstimatorNames()) {
      const auto verl = edge.verl.find(name);
      if (verl == edge.verl.end()) continue;  // not in verl
      INFO(edge.name << ", " << name);
      const auto results = testing::RunStep(name, edge.groups);
      if (verl->second.empty()) {
        REQUIRE(absl::IsInvalidArgument(results.status()));
        continue;
      }
      INFO(results.status().ToString());
      REQUIRE(results.ok());
      RequireAsVerl(edge.groups, *results, verl->second);
    }
  }
}

}  // namespace tandem
