// Results of each estimator for small groups, computed by hand.
#include <catch2/catch.hpp>

#include "tests/controller/algorithm/advantage_rows.h"

namespace tandem {
namespace {

using testing::Row;
using testing::RunGroup;
using testing::RunStep;
using testing::Scores;
using testing::Values;
using Doubles = std::vector<double>;

TEST_CASE("an unknown estimator is refused with the names there are", "[advantages]") {
  const auto found = FindAdvantageEstimator("grop");
  REQUIRE(absl::IsInvalidArgument(found.status()));
  REQUIRE(std::string(found.status().message()).find("grpo, grpo_vectorized") != std::string::npos);
  REQUIRE(std::string(found.status().message()).find("tir_optimal_token_baseline") !=
          std::string::npos);
}

TEST_CASE("both names of GRPO centre, and divide by the deviation unless told not to",
          "[advantages]") {
  for (const std::string name : {"grpo", "grpo_vectorized"}) {
    // mean 1/4, deviation 1/2 with n - 1
    const Doubles values = Values(RunGroup(name, Scores({1, 0, 0, 0})));
    REQUIRE(values[0] == Approx(0.75 / (0.5 + 1e-6)).epsilon(1e-7));
    REQUIRE(values[1] == Approx(-0.25 / (0.5 + 1e-6)).epsilon(1e-7));
    REQUIRE(Values(RunGroup(name, Scores({1, 0, 0, 0}), {.by_std = false})) ==
            Doubles{0.75, -0.25, -0.25, -0.25});
    REQUIRE(Values(RunGroup(name, Scores({1, 0, 0, 0}), {.epsilon = 0.5}))[0] == 0.75);
    REQUIRE(Values(RunGroup(name, Scores({3})))[0] == Approx(3 / (1 + 1e-6)).epsilon(1e-7));
  }
}

TEST_CASE("grpo_passk pays the best response alone, by its lead", "[advantages]") {
  REQUIRE(Values(RunGroup("grpo_passk", Scores({1, 4, 2}), {.by_std = false})) == Doubles{0, 2, 0});
  // squares 16/9 + 25/9 + 1/9 = 42/9; deviation sqrt(42/9 / 2)
  REQUIRE(Values(RunGroup("grpo_passk", Scores({1, 4, 2})))[1] ==
          Approx(2 / (std::sqrt(42.0 / 18) + 1e-6)).epsilon(1e-12));
  REQUIRE(Values(RunGroup("grpo_passk", Scores({4, 1, 4}))) == Doubles{0, 0, 0});
  REQUIRE(Values(RunGroup("grpo_passk", Scores({0, 0, 0}))) == Doubles{0, 0, 0});
  REQUIRE(Values(RunGroup("grpo_passk", Scores({-3, -1}), {.by_std = false})) == Doubles{0, 2});
  const auto alone = RunStep("grpo_passk", {Scores({1})});
  REQUIRE(absl::IsInvalidArgument(alone.status()));
  REQUIRE(std::string(alone.status().message()).find("raise rollout.n") != std::string::npos);
}

TEST_CASE("the two RLOOs agree but for a group of one", "[advantages]") {
  for (const std::string name : {"rloo", "rloo_vectorized"}) {
    // The others' means: 1, 2, 5/2, 5/2, 2.
    REQUIRE(Values(RunGroup(name, Scores({6, 2, 0, 0, 2}))) == Doubles{5, 0, -2.5, -2.5, 0});
    REQUIRE(Values(RunGroup(name, Scores({2, 2, 2, 2}))) == Doubles{0, 0, 0, 0});
  }
  REQUIRE(Values(RunGroup("rloo", Scores({3}))) == Doubles{3});
  REQUIRE(Values(RunGroup("rloo_vectorized", Scores({3}))) == Doubles{0});
}

TEST_CASE("opo's baseline weighs scores by trained tokens", "[advantages]") {
  // Of five tokens, three are trained and two: (3 * 2 + 2 * -1) / 5.
  const AdvantageGroup group = {Row(0, {0, 0, 2}), Row(1, {0, 0, 0, 0, -1}, {1, 0, 1, 0, 0})};
  REQUIRE(Values(RunGroup("opo", group)) == Doubles{2 - 0.8, -1 - 0.8});
  REQUIRE(Values(RunGroup("opo", Scores({3}))) == Doubles{3});
  // An empty response is judged but weighs nothing.
  AdvantageGroup with_empty = {Row(0, {0, 2}), Row(1, {})};
  with_empty[1].score = -4;
  REQUIRE(Values(RunGroup("opo", with_empty)) == Doubles{0, -6});
}

TEST_CASE("gpg scales by the share of samples with a score in the whole step", "[advantages]") {
  const auto results = RunStep("gpg", {Scores({1, 0}), Scores({0, 0, 0}, 2), Scores({-2}, 5)});
  REQUIRE(results.ok());
  // 6 samples, 2 with a score.
  REQUIRE(Values((*results)[0]) == Doubles{1.5, -1.5});
  REQUIRE(Values((*results)[1]) == Doubles{0, 0, 0});
  REQUIRE(Values((*results)[2]) == Doubles{-6});
  REQUIRE(Values(RunGroup("gpg", Scores({0, 0}))) == Doubles{0, 0});
}

TEST_CASE("reinforce_plus_plus discounts over trained tokens and whitens over the step",
          "[advantages]") {
  // Returns of the trained tokens: 1/2 + 1/2 * (2 + 1/2 * 4) = 5/2, 2 + 1/2 * 4 = 4, 4. A reward on
  // a masked token belongs to nobody.
  const AdvantageGroup group = {Row(0, {0.5f, 9, 2, 4}, {1, 0, 1, 1})};
  const RowAdvantage result = RunGroup("reinforce_plus_plus", group, {.gamma = 0.5})[0];
  REQUIRE(result.returns == Doubles{2.5, 0, 4, 4});
  // mean 7/2, squares 1 + 1/4 + 1/4, variance 3/4 with n - 1
  const double scale = 1 / std::sqrt(0.75 + 1e-8);
  REQUIRE(result.tokens[0] == Approx(-scale).epsilon(1e-12));
  REQUIRE(result.tokens[1] == 0);
  REQUIRE(result.tokens[2] == Approx(0.5 * scale).epsilon(1e-12));
  REQUIRE(result.tokens[3] == result.tokens[2]);
}

TEST_CASE("reinforce_plus_plus_baseline centres groups and whitens by tokens", "[advantages]") {
  // Centred: 1, -1 (two tokens each) and, alone in its group, 3 (one token).
  const auto results =
      RunStep("reinforce_plus_plus_baseline", {Scores({2, 0}), {Row(2, {3, 0}, {0, 1})}});
  REQUIRE(results.ok());
  // mean 3/5; squares 2 * 4/25 + 2 * 64/25 + 144/25 = 280/25; variance 280/100
  const double scale = 1 / std::sqrt(2.8 + 1e-8);
  REQUIRE((*results)[0][0].value == Approx(0.4 * scale).epsilon(1e-12));
  REQUIRE((*results)[0][1].value == Approx(-1.6 * scale).epsilon(1e-12));
  REQUIRE((*results)[1][0].value == Approx(2.4 * scale).epsilon(1e-12));
  // Equal scores: nothing to divide by but the epsilon.
  REQUIRE(Values(RunGroup("reinforce_plus_plus_baseline", Scores({2, 2}))) == Doubles{0, 0});
}

TEST_CASE("remax takes the greedy response's reward off what is to come", "[advantages]") {
  AdvantageGroup group = {Row(0, {1, 8, 2}, {1, 0, 1})};
  group[0].baseline = 0.5;
  const RowAdvantage result = RunGroup("remax", group)[0];
  REQUIRE(result.returns == Doubles{3, 2, 2});
  REQUIRE(result.tokens == Doubles{2.5, 2, 1.5});
}

TEST_CASE("gdpo normalises each key by itself, weighs, adds and whitens", "[advantages]") {
  AdvantageGroup group = Scores({0, 0});
  group[0].components = {1, 10};
  group[1].components = {0, 30};
  // Each key: +-1 / sqrt 2. With weights 2 and 1/2, the sums are +-(2 - 1/2) / sqrt 2: whitened
  // over four tokens, +-sqrt(3/4).
  const AdvantageOptions options{.component_weights = {2, 0.5}};
  const Doubles values = Values(RunGroup("gdpo", group, options));
  REQUIRE(values[0] == Approx(std::sqrt(0.75)).epsilon(1e-5));
  REQUIRE(values[1] == Approx(-std::sqrt(0.75)).epsilon(1e-5));
  // The second key wins where it weighs more, and where nothing is divided by the deviation.
  REQUIRE(Values(RunGroup("gdpo", group, {.component_weights = {0.5, 2}}))[0] < -0.5);
  REQUIRE(Values(RunGroup("gdpo", group, {.by_std = false}))[0] < -0.5);
  // Weights that are not given are ones: whitening hides another common factor, unless the
  // advantages are as small as its epsilon. Here they are +-5e-5, and their variance is 1e-8 / 3.
  AdvantageGroup small = Scores({0, 0});
  small[0].components = {1e-4f};
  small[1].components = {0};
  const double scale = 1 / std::sqrt(1e-8 / 3 + 1e-8);
  REQUIRE(Values(RunGroup("gdpo", small, {.by_std = false}))[0] ==
          Approx(5e-5 * scale).epsilon(1e-5));
  REQUIRE(
      absl::IsInvalidArgument(RunStep("gdpo", {group}, {.component_weights = {1, 1, 1}}).status()));
  group[1].components.pop_back();
  REQUIRE(absl::IsInvalidArgument(RunStep("gdpo", {group}).status()));
  REQUIRE(absl::IsInvalidArgument(RunStep("gdpo", {Scores({1, 2})}).status()));
}

}  // namespace
}  // namespace tandem
