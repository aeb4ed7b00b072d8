// The optimal token baselines, on numbers that can be computed by hand.
#include <catch2/catch.hpp>

#include "tests/controller/algorithm/advantage_rows.h"

namespace tandem {
namespace {

using testing::Row;
using testing::RunGroup;
using Doubles = std::vector<double>;

const std::vector<std::string> kBoth = {"optimal_token_baseline", "tir_optimal_token_baseline"};

// Every token of probability 1/2, with `sum_pi_squared`: its score function has that squared norm.
AdvantageRow Weighed(AdvantageRow row, std::vector<float> sum_pi_squared) {
  row.log_probs.assign(row.rewards.size(), std::log(0.5f));
  row.sum_pi_squared = std::move(sum_pi_squared);
  return row;
}

// Returns 4 4 and 1 1; W: 1 3 and 1 2.
AdvantageGroup Two() { return {Weighed(Row(0, {0, 4}), {1, 2}), Weighed(Row(1, {0, 1}), {1, 1})}; }

Doubles Approximately(const Doubles& got, const Doubles& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == Approx(want[i]).margin(1e-6));
  return got;
}

}  // namespace

TEST_CASE("the token baseline weighs returns by the energy so far", "[advantages]") {
  for (const std::string& name : kBoth) {
    const auto results = RunGroup(name, Two());
    // (4 + 1) / 2, (4 * 3 + 1 * 2) / 5
    Approximately(results[0].tokens, {1.5, 1.2});
    Approximately(results[1].tokens, {-1.5, -1.8});
    REQUIRE(results[0].returns == Doubles{4, 4});
  }
}

TEST_CASE("importance weights count with their square", "[advantages]") {
  for (const std::string& name : kBoth) {
    AdvantageGroup group = Two();
    group[1].is_weights = {3, 1};  // W: 9, 10
    // (4 + 9) / 10, (4 * 3 + 10) / 13
    Approximately(RunGroup(name, group)[0].tokens, {4 - 1.3, 4 - 22.0 / 13});
  }
}

TEST_CASE("the probability of the token lowers its weight", "[advantages]") {
  for (const std::string& name : kBoth) {
    AdvantageGroup group = Two();
    group[0].log_probs = {std::log(0.25f), std::log(0.5f)};  // W: 1 - 1/2 + 1 = 3/2, 7/2
    Approximately(RunGroup(name, group)[0].tokens,
                  {4 - (4 * 1.5 + 1) / 2.5, 4 - (4 * 3.5 + 2) / 5.5});
  }
}

TEST_CASE("tokens that could not have been others have no baseline", "[advantages]") {
  for (const std::string& name : kBoth) {
    AdvantageGroup group = Two();
    for (AdvantageRow& row : group) {
      row.log_probs = {0, 0};
      row.sum_pi_squared = {1, 1};  // W: 0
    }
    REQUIRE(RunGroup(name, group)[0].tokens == Doubles{4, 4});
  }
}

TEST_CASE("a response alone has no baseline", "[advantages]") {
  for (const std::string& name : kBoth) {
    REQUIRE(RunGroup(name, {Weighed(Row(0, {1, 0, 2}, {1, 0, 1}), {1, 1, 1})})[0].tokens ==
            Doubles{3, 0, 2});
  }
}

TEST_CASE("the tail of the longest response is its own baseline, or has none", "[advantages]") {
  const AdvantageGroup group = {Weighed(Row(0, {0, 0, 4}), {1, 1, 1}), Weighed(Row(1, {2}), {1})};
  for (const std::string& name : kBoth) {
    for (const std::optional<bool> given : {std::optional<bool>(), {true}, {false}}) {
      const double tail = given.value_or(true) ? 4 : 0;
      const auto results = RunGroup(name, group, {.handle_zero_tail = given});
      Approximately(results[0].tokens, {1, tail, tail});
      Approximately(results[1].tokens, {-1});
    }
    // No single longest one: nothing to handle.
    AdvantageGroup equal = Two();
    REQUIRE(RunGroup(name, equal, {.handle_zero_tail = true})[0].tokens ==
            RunGroup(name, equal, {.handle_zero_tail = false})[0].tokens);
  }
}

TEST_CASE("turns of tools are positions for the one and not for the other", "[advantages]") {
  // Trained: the first and the last token of the one, both of the other.
  const AdvantageGroup group = {Weighed(Row(0, {0, 7, 4}, {1, 0, 1}), {1, 9, 2}),
                                Weighed(Row(1, {0, 1}), {1, 1})};
  const auto tir = RunGroup("tir_optimal_token_baseline", group, {.handle_zero_tail = false});
  Approximately(tir[0].tokens, {1.5, 0, 1.2});
  Approximately(tir[1].tokens, {-1.5, -1.8});
  const auto otb = RunGroup("optimal_token_baseline", group);
  // At position 1 the other response is alone, at position 2 this one.
  Approximately(otb[0].tokens, {1.5, 0, 0});
  Approximately(otb[1].tokens, {-1.5, 0});
  // verl's zero tail counts trained tokens as if they were positions: from 2 on nobody is left.
  const AdvantageGroup longer = {Weighed(Row(0, {0, 7, 0, 4}, {1, 0, 1, 1}), {1, 9, 2, 1}),
                                 Weighed(Row(1, {0, 1}), {1, 1})};
  Approximately(RunGroup("optimal_token_baseline", longer, {.handle_zero_tail = true})[0].tokens,
                {1.5, 0, 4, 4});
}

TEST_CASE("an empty response belongs to the group of the one and not of the other",
          "[advantages]") {
  const AdvantageGroup group = {Weighed(Row(0, {0, 4}), {1, 1}), Weighed(Row(1, {}), {})};
  Approximately(RunGroup("optimal_token_baseline", group, {.handle_zero_tail = false})[0].tokens,
                {0, 0});
  REQUIRE(RunGroup("tir_optimal_token_baseline", group, {.handle_zero_tail = false})[0].tokens ==
          Doubles{4, 4});
  REQUIRE(RunGroup("tir_optimal_token_baseline", group)[1].tokens.empty());
}

}  // namespace tandem
