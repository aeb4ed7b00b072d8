#include "controller/reward/composite_reward.h"

#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "controller/reward/overlong.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

TEST_CASE("The composite reward adds weighted terms and reports each", "[reward][composite]") {
  v1::Reward config = DefaultConfig().reward();
  v1::RewardTerm* term = config.add_terms();
  term->set_name("format");
  term->set_weight(0.5);
  term->set_args(R"({"pattern": "="})");
  const auto reward = MakeReward(config).value();
  RewardItem right, wrong;
  right.data_source = wrong.data_source = "tandem/addition";
  right.ground_truth = wrong.ground_truth = "7";
  right.response = "3 + 4 = 7";
  wrong.response = "8";
  const auto scores = reward->Score({right, wrong}).value();
  REQUIRE(scores[0].score == 1.5);
  REQUIRE(scores[0].extras.at("score") == 1.0);
  REQUIRE(scores[0].extras.at("format") == 1.0);
  REQUIRE(scores[1].score == 0.0);
}

namespace {
v1::Reward LoadComposite(const std::vector<std::string>& overrides) {
  const auto loaded = LoadConfig("", overrides);
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  return loaded->config.reward();
}

RewardItem ItemOf(const std::string& source, const std::string& response, int64_t tokens = 1) {
  RewardItem item;
  item.data_source = source;
  item.response = response;
  item.ground_truth = "7";
  item.response_tokens = tokens;
  return item;
}
}  // namespace

TEST_CASE("Every score has verl's score, and acc where that is another number",
          "[reward][composite]") {
  const auto reward = MakeReward(LoadComposite({})).value();
  const auto scores =
      reward
          ->Score({ItemOf("openai/gsm8k", "#### 7"), ItemOf("aime24", "Answer: 7"),
                   ItemOf("aime24", "Answer: 8"), ItemOf("lighteval/MATH", "\\boxed{8}")})
          .value();
  const double score[] = {1, 1, -1, 0};
  const std::map<size_t, double> acc = {{1, 1}, {2, 0}};
  const std::string prediction[] = {"7", "7", "8", "8"};
  for (size_t i = 0; i < 4; ++i) {
    INFO(i);
    REQUIRE(scores[i].score == score[i]);
    std::map<std::string, double> extras = {{"score", score[i]}};
    if (acc.contains(i)) extras["acc"] = acc.at(i);
    REQUIRE(scores[i].extras == extras);
    REQUIRE(scores[i].prediction == prediction[i]);
  }
}

TEST_CASE("Two terms of one name are refused, as values are told apart by it",
          "[reward][composite]") {
  const auto twice = MakeReward(LoadComposite(
      {"reward.terms=[{name: format, args: {pattern: a}}, {name: format, args: {pattern: b}}]"}));
  REQUIRE(twice.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(twice.status().message().find("there is a term format already") != std::string::npos);
}

TEST_CASE("The overlong penalty is added to the score and reported if asked for",
          "[reward][composite]") {
  const std::vector<std::string> keys = {
      "reward.overlong_buffer.enable=true", "reward.overlong_buffer.len=4",
      "reward.overlong_buffer.penalty_factor=0.5", "data.max_response_length=16"};
  const std::vector<RewardItem> items = {ItemOf("openai/gsm8k", "#### 7", 12),
                                         ItemOf("openai/gsm8k", "#### 7", 14),
                                         ItemOf("openai/gsm8k", "", 16)};
  const auto silent = MakeReward(LoadComposite(keys)).value()->Score(items).value();
  const double want[] = {1, 0.75, -0.5};
  for (size_t i = 0; i < 3; ++i) {
    REQUIRE(silent[i].score == want[i]);
    REQUIRE(silent[i].extras.at("score") == (i < 2 ? 1.0 : 0.0));
    REQUIRE_FALSE(silent[i].extras.contains("overlong"));
  }
  auto logged = keys;
  logged.push_back("reward.overlong_buffer.log=true");
  const auto told = MakeReward(LoadComposite(logged)).value()->Score(items).value();
  REQUIRE(told[0].extras.at("overlong_reward") == 0);
  REQUIRE(told[0].extras.at("overlong") == 0);
  REQUIRE(told[1].extras.at("overlong_reward") == -0.25);
  REQUIRE(told[2].extras.at("overlong_reward") == -0.5);
  REQUIRE(told[2].extras.at("overlong") == 1);
  REQUIRE(told[2].score == -0.5);
}

// verl 0.9.1, DAPORewardManager with a score of 1: its overlong_reward and what is added to the
// score.
TEST_CASE("The overlong penalty at its limits is verl's, and so are its refusals",
          "[reward][composite]") {
  struct Case {
    int64_t tokens, longest, buffer;
    double factor, verl;
  };
  for (const Case& c :
       {Case{0, 6, 2, 1, 0}, Case{0, 2, 2, 1, 0}, Case{0, 6, 6, 1, 0}, Case{1, 6, 2, 1, 0},
        Case{4, 6, 2, 1, 0}, Case{5, 6, 2, 1, -0.5}, Case{6, 6, 2, 1, -1}, Case{6, 4, 2, 1, -2},
        Case{3, 6, 6, 1, -0.5}, Case{3, 6, 2, 0, 0}, Case{6, 6, 2, -1, 0}, Case{0, 6, 2, -1, -2}}) {
    INFO(c.tokens << " of " << c.longest);
    REQUIRE((*OverlongPenalty::Create(c.longest, c.buffer, c.factor))(c.tokens) == c.verl);
  }
  struct Refused {
    int64_t longest, buffer;
  };
  for (const Refused& c :
       {Refused{0, 2}, Refused{0, 0}, Refused{6, 0}, Refused{6, -1}, Refused{6, 7}}) {
    REQUIRE(absl::IsInvalidArgument(OverlongPenalty::Create(c.longest, c.buffer, 1).status()));
    v1::Reward config = DefaultConfig().reward();
    config.mutable_overlong_buffer()->set_enable(true);
    config.mutable_overlong_buffer()->set_len(c.buffer);
    config.set_max_resp_len(c.longest);
    REQUIRE(std::string(MakeReward(config).status().message()).find("reward.overlong_buffer.len") ==
            0);
  }
  // A maximum that is not given is data.max_response_length; verl has none and raises.
  REQUIRE(LoadComposite({"data.max_response_length=6"}).max_resp_len() == 6);
}

TEST_CASE("The overlong buffer is found under verl's names", "[reward][composite]") {
  for (const std::string section :
       {"reward.reward_kwargs.overlong_buffer_cfg", "reward_model.overlong_buffer",
        "reward_model.reward_kwargs.overlong_buffer_cfg", "reward.overlong_buffer"}) {
    const v1::Reward config =
        LoadComposite({section + ".enable=true", section + ".len=3", section + ".penalty_factor=2",
                       section + ".log=true", "data.max_response_length=20"});
    INFO(section);
    REQUIRE(config.overlong_buffer().enable());
    REQUIRE(config.overlong_buffer().len() == 3);
    REQUIRE(config.overlong_buffer().penalty_factor() == 2);
    REQUIRE(config.overlong_buffer().log());
    REQUIRE(config.max_resp_len() == 20);
  }
  for (const std::string key : {"reward.reward_kwargs.max_resp_len",
                                "reward_model.reward_kwargs.max_resp_len", "reward.max_resp_len"}) {
    REQUIRE(LoadComposite({key + "=9", "data.max_response_length=20"}).max_resp_len() == 9);
  }
}

TEST_CASE("The composite reward refuses what nobody can score", "[reward][composite]") {
  const auto reward = MakeReward(DefaultConfig().reward()).value();
  RewardItem item;
  item.data_source = "unknown/source";
  REQUIRE(reward->Score({item}).status().code() == absl::StatusCode::kInvalidArgument);

  v1::Reward remote = DefaultConfig().reward();
  remote.set_function("remote");
  REQUIRE(std::string(MakeReward(remote).status().message()).find("service_address") !=
          std::string::npos);
  // Beyond this host with this host's certificates, on it without.
  remote.set_service_address("node7:5000");
  const RpcSecurity security{.cert = "/nonexistent/cert.pem", .key = "k", .ca = "c"};
  REQUIRE(absl::IsInvalidArgument(MakeReward(remote).status()));
  REQUIRE(std::string(MakeReward(remote, security).status().message()).find("/nonexistent/cert") !=
          std::string::npos);
  remote.set_service_address("127.0.0.1:5000");
  REQUIRE(MakeReward(remote, security).ok());
  v1::Reward bad_term = DefaultConfig().reward();
  bad_term.add_terms()->set_name("nonsense");
  REQUIRE_FALSE(MakeReward(bad_term).ok());
}
