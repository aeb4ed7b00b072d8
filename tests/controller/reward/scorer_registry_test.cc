#include "controller/reward/scorer_registry.h"

#include <catch2/catch.hpp>

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

TEST_CASE("A data source nobody knows is refused with the remedy", "[reward][registry]") {
  REQUIRE(FunctionOfDataSource("openai/gsm8k").value() == "gsm8k_strict");
  REQUIRE(Message(FunctionOfDataSource("my/data").status()).find("reward.function") !=
          std::string::npos);
}
