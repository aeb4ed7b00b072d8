#include "controller/reward/scorer_registry.h"

#include <catch2/catch.hpp>

#include "common/config/config.h"
#include "controller/reward/check_reward.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {
RewardItem Item(const std::string& response, const std::string& truth) {
  RewardItem item;
  item.response = response;
  item.ground_truth = truth;
  item.response_tokens = 15;
  return item;
}
double Score(const std::string& name, const std::string& args, const RewardItem& item) {
  return MakeScorer(name, args).value()(item);
}
std::string Message(const absl::Status& status) { return std::string(status.message()); }
}  // namespace

TEST_CASE("Every built-in scorer tells a right answer from a wrong one", "[reward][registry]") {
  REQUIRE(Score("exact", "", Item("yes", "yes")) == 1.0);
  REQUIRE(Score("exact", "", Item("no", "yes")) == 0.0);
  REQUIRE(Score("number", "", Item("about 2.50", "2.5")) == 1.0);
  REQUIRE(Score("number", "{\"tolerance\": 0.1}", Item("2.45", "2.5")) == 1.0);
  REQUIRE(Score("number", "", Item("2.45", "2.5")) == 0.0);
  REQUIRE(Score("first_integer", "", Item("7 or 8", "7")) == 1.0);
  REQUIRE(Score("last_integer", "", Item("3 + 4 = 7", "7")) == 1.0);
  REQUIRE(Score("last_integer", "", Item("3 + 4 = 8", "7")) == 0.0);
  REQUIRE(Score("regex", R"({"pattern": "<a>(.*?)</a>"})", Item("<a>x</a> <a>y</a>", "y")) == 1.0);
  REQUIRE(Score("regex", R"({"pattern": "<a>(.*?)</a>"})", Item("y", "y")) == 0.0);
  REQUIRE(Score("format", R"({"pattern": "^Answer:"})", Item("Answer: 3", "")) == 1.0);
  REQUIRE(Score("length", R"({"max_tokens": 16, "buffer_tokens": 4})", Item("", "")) == -0.75);
  REQUIRE(Score("gsm8k_strict", "", Item("#### 12", "12")) == 1.0);
  REQUIRE(Score("gsm8k_flexible", "", Item("so 12", "12")) == 1.0);
}

TEST_CASE("A wrong reward name, argument or pattern is refused by name", "[reward][registry]") {
  REQUIRE(Message(MakeScorer("exatc", "").status()).find("last_integer") != std::string::npos);
  REQUIRE(Message(MakeScorer("exact", "{\"x\": 1}").status()).find("unknown argument x") !=
          std::string::npos);
  REQUIRE(Message(MakeScorer("exact", "[1]").status()).find("JSON object") != std::string::npos);
  REQUIRE(Message(MakeScorer("regex", R"({"pattern": "("})").status()).find("compile") !=
          std::string::npos);
  REQUIRE_FALSE(MakeScorer("regex", "").ok());
  REQUIRE_FALSE(MakeScorer("number", R"({"tolerance": "a"})").ok());
  REQUIRE_FALSE(MakeScorer("length", "").ok());
}

TEST_CASE("A pattern that explodes scores nothing instead of hanging", "[reward][registry]") {
  const std::string trap(5000, 'a');
  REQUIRE(Score("format", R"x({"pattern": "^(a+)+$"})x", Item(trap + "b", "")) == 0.0);
}

TEST_CASE("What a message offers for reward.function is what the key takes", "[reward][registry]") {
  const std::string refused = Message(FunctionOfDataSource("my/data").status());
  for (const std::string& name : FunctionNames()) {
    INFO(name);
    REQUIRE(refused.find(name) != std::string::npos);
    REQUIRE(LoadConfig("", {"reward.function=" + name}).ok());
  }
  REQUIRE(refused.find("format") == std::string::npos);
  REQUIRE(refused.find("length") == std::string::npos);
}

TEST_CASE("A ground truth that nothing can match is refused", "[reward][registry]") {
  for (const std::string name : {"first_integer", "last_integer", "number", "gsm8k_strict"}) {
    INFO(name);
    REQUIRE(CheckTruth(name, "12").ok());
    REQUIRE(CheckTruth(name, "-3").ok());
    REQUIRE_FALSE(CheckTruth(name, "abc").ok());
    REQUIRE_FALSE(CheckTruth(name, "").ok());
  }
  REQUIRE(CheckTruth("number", "2.5").ok());
  REQUIRE_FALSE(CheckTruth("last_integer", "2.5").ok());
  REQUIRE(CheckTruth("exact", "abc").ok());
  REQUIRE(CheckTruth("regex", "abc").ok());
  REQUIRE(Message(CheckTruth("last_integer", "abc")).find("needs an integer") != std::string::npos);
}

TEST_CASE("A reward section that cannot work is told with its keys", "[reward][registry]") {
  const auto check = [](const std::vector<std::string>& overrides) {
    const auto loaded = LoadConfig("", overrides);
    REQUIRE(loaded.ok());
    return Message(CheckReward(loaded->config.reward(), loaded->origins));
  };
  REQUIRE(check({}).empty());
  REQUIRE(check({"reward.function=regex", "reward.args={pattern: x}"}).empty());
  const std::string lacking = check({"reward.function=regex"});
  REQUIRE(lacking.find("reward.args: reward regex: needs the argument pattern") !=
          std::string::npos);
  const std::string unknown = check({"reward.function=last_integer", "reward.args={tolerence: 1}"});
  REQUIRE(unknown.find("reward.args at --set: reward last_integer: unknown argument tolerence") !=
          std::string::npos);
  const std::string both = check({"reward.terms=[{name: format, args: {pattern: x}}, {name: nice}]",
                                  "reward.function=remote"});
  REQUIRE(both.find("reward.terms[1] at --set: unknown reward nice") != std::string::npos);
  REQUIRE(both.find("reward.service_address is empty") != std::string::npos);
  REQUIRE(check({"reward.args={format_score: 0.1}"}).empty());  // auto: gsm8k takes it
  REQUIRE_FALSE(check({"reward.args={nobodys: 0.1}"}).empty());
}

TEST_CASE("A data source nobody knows is refused with the remedy", "[reward][registry]") {
  REQUIRE(FunctionOfDataSource("openai/gsm8k").value() == "gsm8k_strict");
  REQUIRE(Message(FunctionOfDataSource("my/data").status()).find("reward.function") !=
          std::string::npos);
}
