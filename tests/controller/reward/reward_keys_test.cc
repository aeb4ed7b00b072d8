#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "controller/reward/check_reward.h"
#include "controller/reward/composite_reward.h"
#include "controller/reward/scorer_registry.h"

namespace tandem {
namespace {

LoadedConfig LoadKeys(const std::vector<std::string>& overrides) {
  const auto loaded = LoadConfig("", overrides);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return *loaded;
}

void RequireSaid(const absl::Status& status, const std::vector<std::string>& parts) {
  INFO(status.ToString());
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  for (const std::string& part : parts) {
    INFO(part);
    REQUIRE(status.message().find(part) != std::string::npos);
  }
}

absl::Status CheckLoaded(const LoadedConfig& loaded) {
  ConfigProblems problems(loaded.origins);
  CheckReward(loaded.config, problems);
  return problems.status();
}

// What every response to a row of `source` is given.
std::set<std::string> Given(RewardFunction& reward, const std::string& source) {
  RewardItem item;
  item.data_source = source;
  item.response = "Answer: 7, 7, #### 7, \\boxed{7}, <answer>7</answer>";
  item.ground_truth = "7";
  item.response_tokens = 3;
  const auto scores = reward.Score({item});
  REQUIRE(scores.ok());
  std::set<std::string> keys;
  for (const auto& [key, value] : scores->front().extras) keys.insert(key);
  return keys;
}

const std::vector<std::vector<std::string>> kAround = {
    {},
    {"reward.terms=[{name: length, args: {max_tokens: 9, buffer_tokens: 4}}]"},
    {"reward.overlong_buffer.enable=true", "reward.overlong_buffer.len=4"},
    {"reward.overlong_buffer.enable=true", "reward.overlong_buffer.len=4",
     "reward.overlong_buffer.log=true", "reward.terms=[{name: format, args: {pattern: x}}]"}};

TEST_CASE("Every function gives a response the keys that it tells", "[reward][keys]") {
  for (std::vector<std::string> overrides : kAround) {
    for (const std::string& function : FunctionNames()) {
      INFO(function << " with " << overrides.size() << " other keys");
      std::vector<std::string> all = overrides;
      all.push_back("reward.function=" + function);
      if (function == "regex") all.push_back("reward.args={pattern: '7'}");
      const auto reward = MakeReward(LoadKeys(all).config.reward());
      REQUIRE(reward.ok());
      REQUIRE((*reward)->Keys("any") == Given(**reward, "any"));
    }
    const auto by_source = MakeReward(LoadKeys(overrides).config.reward());
    REQUIRE(by_source.ok());
    for (const std::string& source : KnownDataSources()) {
      INFO(source);
      REQUIRE((*by_source)->Keys(source) == Given(**by_source, source));
    }
  }
}

TEST_CASE("A reward service does not tell its keys", "[reward][keys]") {
  const LoadedConfig loaded =
      LoadKeys({"reward.function=remote", "reward.service_address=127.0.0.1:1",
                "algorithm.adv_estimator=gdpo", "algorithm.gdpo_reward_keys=[grace]"});
  const auto reward = MakeReward(loaded.config.reward());
  REQUIRE(reward.ok());
  REQUIRE_FALSE((*reward)->Keys("x").has_value());
  REQUIRE(CheckRewardKeys(loaded.config, **reward, {"x"}).ok());
  REQUIRE(CheckLoaded(loaded).ok());
}

TEST_CASE("A key that no row's reward has is refused before the data is read", "[reward][keys]") {
  const auto check = [](const std::vector<std::string>& overrides) {
    const LoadedConfig loaded = LoadKeys(overrides);
    return CheckLoaded(loaded);
  };
  const std::string gdpo = "algorithm.adv_estimator=gdpo";
  RequireSaid(check({gdpo, "algorithm.gdpo_reward_keys=[score, format]"}),
              {"algorithm.gdpo_reward_keys: the reward has no \"format\"",
               "(algorithm.gdpo_reward_keys at --set)", "it has acc, score",
               "add a term format to reward.terms"});
  REQUIRE(check({gdpo, "algorithm.gdpo_reward_keys=[score, format]",
                 "reward.terms=[{name: format, args: {pattern: x}}]"})
              .ok());
  // Not read: another estimator's key, a filter that is off.
  REQUIRE(check({"algorithm.filter_groups.metric=nice"}).ok());
  const std::string enable = "algorithm.filter_groups.enable=true";
  RequireSaid(check({enable, "algorithm.filter_groups.metric=nice"}),
              {"(algorithm.filter_groups.metric at --set)", "no \"nice\"", "seq_reward"});
  for (const char* metric : {"seq_reward", "seq_final_reward", "acc", "score"}) {
    INFO(metric);
    REQUIRE(check({enable, "reward.function=number",
                   std::string("algorithm.filter_groups.metric=") + metric})
                .ok());
  }
  // acc is filled in for the filter alone.
  RequireSaid(check({gdpo, "reward.function=number", "algorithm.gdpo_reward_keys=[acc]"}),
              {"no \"acc\"; it has score"});
}

TEST_CASE("With reward.function auto the rows that are there decide", "[reward][keys]") {
  const LoadedConfig loaded =
      LoadKeys({"algorithm.adv_estimator=gdpo", "algorithm.gdpo_reward_keys=[score, acc]"});
  const auto reward = MakeReward(loaded.config.reward());
  REQUIRE(reward.ok());
  REQUIRE(CheckLoaded(loaded).ok());
  REQUIRE(CheckRewardKeys(loaded.config, **reward, {"math_dapo", "aime24"}).ok());
  RequireSaid(CheckRewardKeys(loaded.config, **reward, {"math_dapo", "openai/gsm8k"}),
              {"rows with data_source \"openai/gsm8k\" has no \"acc\"; it has score"});
}

}  // namespace
}  // namespace tandem
