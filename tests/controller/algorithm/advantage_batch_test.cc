// Properties of every estimator: order, locality, masks, and missing inputs.
#include <random>

#include <catch2/catch.hpp>

#include "tests/controller/algorithm/advantage_rows.h"

namespace tandem {
namespace {

using testing::Row;
using testing::RunStep;
using testing::Scores;

// Of every length from empty, with holes, all arrays filled.
AdvantageRow RandomRow(uint64_t id, std::mt19937& random) {
  std::uniform_real_distribution<float> number(-2, 2);
  const auto fill = [&](size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = number(random);
    return values;
  };
  const size_t tokens = random() % 9;
  std::vector<float> mask(tokens);
  for (float& keep : mask) keep = random() % 4 == 0 ? 0.0f : 1.0f;
  AdvantageRow row = Row(id, fill(tokens), mask);
  row.components = fill(3);
  row.baseline = number(random);
  row.sum_pi_squared = fill(tokens);
  row.is_weights = fill(tokens);
  for (const float value : fill(tokens)) row.log_probs.push_back(value - 2);
  return row;
}

std::vector<AdvantageGroup> RandomStep(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<AdvantageGroup> groups;
  uint64_t id = 0;
  for (const size_t members : {3u, 2u, 6u, 4u}) {
    groups.emplace_back();
    for (size_t i = 0; i < members; ++i) groups.back().push_back(RandomRow(id++, random));
  }
  return groups;
}

bool Same(const std::vector<RowAdvantage>& a, const std::vector<RowAdvantage>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.value == y.value && x.tokens == y.tokens && x.returns == y.returns;
  });
}

}  // namespace

TEST_CASE("the order of groups does not change a bit", "[advantages]") {
  std::mt19937 random(5);
  for (const std::string& name : AdvantageEstimatorNames()) {
    INFO(name);
    const std::vector<AdvantageGroup> groups = RandomStep(11);
    const auto results = RunStep(name, groups);
    REQUIRE(results.ok());
    std::vector<size_t> order = {0, 1, 2, 3};
    for (int round = 0; round < 6; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      std::vector<AdvantageGroup> shuffled;
      for (const size_t i : order) shuffled.push_back(groups[i]);
      const auto again = RunStep(name, shuffled);
      REQUIRE(again.ok());
      for (size_t i = 0; i < order.size(); ++i) REQUIRE(Same((*again)[i], (*results)[order[i]]));
    }
  }
}

TEST_CASE("only whitening and gpg let one group change the advantages of another", "[advantages]") {
  for (const std::string& name : AdvantageEstimatorNames()) {
    INFO(name);
    const auto estimator = FindAdvantageEstimator(name);
    std::vector<AdvantageGroup> groups = RandomStep(12);
    const auto before = RunStep(name, groups);
    groups[2] = RandomStep(13)[2];
    for (AdvantageRow& row : groups[2]) row.score = 0;
    const auto after = RunStep(name, groups);
    REQUIRE(before.ok());
    REQUIRE(after.ok());
    const bool local = estimator->whitening == Whitening::kNone && name != "gpg";
    for (const size_t other : {0u, 1u, 3u}) {
      REQUIRE(Same((*before)[other], (*after)[other]) == local);
    }
  }
}

TEST_CASE("padding a response with masked tokens changes no trained token's advantage",
          "[advantages]") {
  for (const std::string& name : AdvantageEstimatorNames()) {
    INFO(name);
    const std::vector<AdvantageGroup> groups = RandomStep(14);
    std::vector<AdvantageGroup> padded = groups;
    for (AdvantageGroup& group : padded) {
      for (AdvantageRow& row : group) {
        row.tokens += 2;
        for (auto* array :
             {&row.mask, &row.rewards, &row.log_probs, &row.sum_pi_squared, &row.is_weights}) {
          array->insert(array->end(), 2, array == &row.mask ? 0.0f : 5.0f);
        }
      }
    }
    const auto narrow = RunStep(name, groups);
    const auto wide = RunStep(name, padded);
    REQUIRE(wide.ok());
    for (size_t g = 0; g < groups.size(); ++g) {
      for (size_t i = 0; i < groups[g].size(); ++i) {
        const RowAdvantage &a = (*narrow)[g][i], &b = (*wide)[g][i];
        REQUIRE(a.value == b.value);
        for (size_t t = 0; t < a.tokens.size(); ++t) {
          if (groups[g][i].mask[t] != 0) REQUIRE(a.tokens[t] == b.tokens[t]);
        }
      }
    }
  }
}

TEST_CASE("whitened advantages have mean 0 and variance 1 with n - 1", "[advantages]") {
  for (const std::string name : {"reinforce_plus_plus", "reinforce_plus_plus_baseline", "gdpo"}) {
    INFO(name);
    const std::vector<AdvantageGroup> groups = RandomStep(15);
    const auto results = RunStep(name, groups);
    REQUIRE(results.ok());
    double count = 0, sum = 0, squares = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      for (size_t i = 0; i < groups[g].size(); ++i) {
        const RowAdvantage& result = (*results)[g][i];
        for (size_t t = 0; t < groups[g][i].mask.size(); ++t) {
          const double value = result.tokens.empty() ? result.value : result.tokens[t];
          if (groups[g][i].mask[t] == 0) {
            if (!result.tokens.empty()) REQUIRE(value == 0);
            continue;
          }
          count += 1;
          sum += value;
          squares += value * value;
        }
      }
    }
    REQUIRE(sum / count == Approx(0).margin(1e-12));
    REQUIRE(squares / (count - 1) == Approx(1).epsilon(1e-6));
  }
}

TEST_CASE("whitening survives numbers that are large beside their spread", "[advantages]") {
  const auto results = RunStep("reinforce_plus_plus",
                               {{Row(0, {0, 0, 1e6f}), Row(1, {0, 0, 1e6f + 1})}}, {.gamma = 1});
  REQUIRE(results.ok());
  REQUIRE((*results)[0][1].tokens[0] == Approx(0.5 / std::sqrt(0.3 + 1e-8)).epsilon(1e-9));
}

TEST_CASE("a step with fewer than two trained tokens cannot be whitened", "[advantages]") {
  const auto one = RunStep("reinforce_plus_plus", {{Row(0, {1, 2}, {0, 1}), Row(1, {})}});
  REQUIRE(one.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(one.status().message()).find("this step has 1") != std::string::npos);
  REQUIRE_FALSE(RunStep("reinforce_plus_plus_baseline", {}).ok());
  REQUIRE(RunStep("grpo", {{Row(0, {1, 2}, {0, 1}), Row(1, {})}}).ok());
}

TEST_CASE("arrays that an estimator needs are asked for by name", "[advantages]") {
  const auto problem = [](const std::string& name, AdvantageRow row) {
    const auto results = RunStep(name, {{std::move(row)}});
    REQUIRE(absl::IsInvalidArgument(results.status()));
    return std::string(results.status().message());
  };
  REQUIRE(problem("optimal_token_baseline", Row(31, {1, 2}))
              .find("sample 0x1f: optimal_token_baseline needs log-probs") == 0);
  AdvantageRow row = Row(0, {1, 2});
  row.log_probs = {-1, -1};
  row.sum_pi_squared = {0.5f};
  REQUIRE(problem("tir_optimal_token_baseline", row)
              .find("sum_pi_squared, one per response token, and there are 1 for 2") !=
          std::string::npos);
  row.sum_pi_squared = {0.5f, 0.5f};
  row.is_weights = {1};
  REQUIRE(problem("optimal_token_baseline", row).find("importance weights") != std::string::npos);
  row.mask.pop_back();
  REQUIRE(problem("remax", row).find("a mask") != std::string::npos);
  row.rewards.clear();
  REQUIRE(problem("remax", row).find("rewards") != std::string::npos);
}

TEST_CASE("an estimator discounts where it reads token rewards alone, and none bootstraps",
          "[advantages]") {
  const std::vector<std::string> names = AdvantageEstimatorNames();
  REQUIRE(names.size() >= 13);  // one that is added needs no change here
  REQUIRE_FALSE(FindAdvantageEstimator("gae").ok());
  for (const std::string& name : names) {
    INFO(name);
    const auto estimator = FindAdvantageEstimator(name);
    REQUIRE(estimator.ok());
    REQUIRE(estimator->name == name);
    const AdvantageNeeds needs = estimator->needs;
    REQUIRE_FALSE(estimator->bootstraps);
    REQUIRE(estimator->discounts == (needs.rewards && !needs.baseline && !needs.policy));
  }
}

TEST_CASE("groups of one are refused exactly where their advantages teach nothing",
          "[advantages]") {
  for (const std::string& name : AdvantageEstimatorNames()) {
    INFO(name);
    std::vector<AdvantageGroup> groups;
    for (uint64_t id = 0; id < 4; ++id) {
      AdvantageRow row = Row(id, {0, id == 2 ? 1.0f : 0.0f});
      row.components = {row.score};
      row.log_probs = {-0.5f, -0.5f};
      row.sum_pi_squared = {0.5f, 0.5f};
      groups.push_back({row});
    }
    const auto results = RunStep(name, groups);
    bool learns = false;
    for (size_t i = 0; results.ok() && i < groups.size(); ++i) {
      const RowAdvantage& lone = (*results)[i][0];
      const double last = lone.tokens.empty() ? lone.value : lone.tokens.back();
      REQUIRE(std::isfinite(last));
      learns = learns || last != 0;
      // Whatever is taken off or divided by is the same for all: the best is on top.
      if (i == 2) REQUIRE((!learns || last > 0));
    }
    REQUIRE(FindAdvantageEstimator(name)->learns_alone == learns);
  }
}

}  // namespace tandem
