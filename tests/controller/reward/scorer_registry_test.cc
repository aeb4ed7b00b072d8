#include "controller/reward/scorer_registry.h"

#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "controller/reward/check_reward.h"
#include "tests/support/text.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

namespace {
using tandem::testing::Message;

RewardItem ItemToScore(const std::string& response, const std::string& truth) {
  RewardItem item;
  item.response = response;
  item.ground_truth = truth;
  item.response_tokens = 15;
  return item;
}
double Score(const std::string& name, const std::string& args, const RewardItem& item) {
  return MakeScorer(name, args).value()(item).score;
}
}  // namespace

TEST_CASE("Every built-in scorer tells a right answer from a wrong one", "[reward][registry]") {
  REQUIRE(Score("exact", "", ItemToScore("yes", "yes")) == 1.0);
  REQUIRE(Score("exact", "", ItemToScore("no", "yes")) == 0.0);
  REQUIRE(Score("number", "", ItemToScore("about 2.50", "2.5")) == 1.0);
  REQUIRE(Score("number", "{\"tolerance\": 0.1}", ItemToScore("2.45", "2.5")) == 1.0);
  REQUIRE(Score("number", "", ItemToScore("2.45", "2.5")) == 0.0);
  REQUIRE(Score("first_integer", "", ItemToScore("7 or 8", "7")) == 1.0);
  REQUIRE(Score("last_integer", "", ItemToScore("3 + 4 = 7", "7")) == 1.0);
  REQUIRE(Score("last_integer", "", ItemToScore("3 + 4 = 8", "7")) == 0.0);
  REQUIRE(Score("regex", R"({"pattern": "<a>(.*?)</a>"})", ItemToScore("<a>x</a> <a>y</a>", "y")) ==
          1.0);
  REQUIRE(Score("regex", R"({"pattern": "<a>(.*?)</a>"})", ItemToScore("y", "y")) == 0.0);
  REQUIRE(Score("format", R"({"pattern": "^Answer:"})", ItemToScore("Answer: 3", "")) == 1.0);
  REQUIRE(Score("length", R"({"max_tokens": 16, "buffer_tokens": 4})", ItemToScore("", "")) ==
          -0.75);
  REQUIRE(Score("gsm8k_strict", "", ItemToScore("#### 12", "12")) == 1.0);
  REQUIRE(Score("gsm8k_flexible", "", ItemToScore("so 12", "12")) == 1.0);
  REQUIRE(Score("math_reward", "", ItemToScore("\\boxed{\\frac12}", "1/2")) == 1.0);
  REQUIRE(Score("math_reward", "", ItemToScore("\\boxed{3}", "1/2")) == 0.0);
  REQUIRE(Score("math_dapo", "", ItemToScore("Answer: 12", "12")) == 1.0);
  REQUIRE(Score("math_dapo", R"({"strict_box_verify": true})", ItemToScore("Answer: 12", "12")) ==
          -1.0);
  REQUIRE(Score("prime_math", "", ItemToScore("the answer is 1/2", "\\frac12")) == 1.0);
  const RewardItem paris =
      ItemToScore("<answer>in Paris</answer>", R"({"target": ["paris", "rome"]})");
  REQUIRE(Score("search_r1_like_qa_em", R"({"format_score": 0.1})", paris) == 0.1);
  REQUIRE(Score("search_r1_like_qa_em", R"({"subem": true})", paris) == 1.0);
}

TEST_CASE("A pattern finds what Python's re finds", "[reward][registry]") {
  REQUIRE(Score("regex", R"x({"pattern": "(x)$"})x", ItemToScore("x\n", "x")) == 1.0);
  REQUIRE(Score("regex", R"x({"pattern": "(x)\\Z"})x", ItemToScore("x\n", "x")) == 0.0);
  REQUIRE(Score("regex", R"x({"pattern": "[[:alpha:]]"})x", ItemToScore("b a] b", "a]")) == 1.0);
  REQUIRE(Score("regex", R"x({"pattern": "x{,2}y"})x", ItemToScore("xxxy", "xxy")) == 1.0);
  // What Python does not have is PCRE2's.
  REQUIRE(Score("regex", R"x({"pattern": "\\p{Lu}"})x", ItemToScore("aBc", "B")) == 1.0);
  REQUIRE_THAT(Message(MakeScorer("regex", R"x({"pattern": "(*ACCEPT)"})x").status()),
               Catch::Matchers::Contains("(* begins a verb of PCRE2, and Python has none"));
}

TEST_CASE("Every function says what it compared", "[reward][registry]") {
  const std::string response = "7 \\boxed{8}\nAnswer: <answer>9</answer> #### 10";
  const auto prediction = [&](const std::string& name, const std::string& args = "") {
    return MakeScorer(name, args).value()(ItemToScore(response, "7")).prediction;
  };
  REQUIRE(prediction("exact") == response);
  REQUIRE(prediction("number") == "10");
  REQUIRE(prediction("first_integer") == "7");
  REQUIRE(prediction("last_integer") == "10");
  REQUIRE(prediction("regex", R"x({"pattern": "d\\{(.)"})x") == "8");
  REQUIRE(prediction("gsm8k_strict") == "10");
  REQUIRE(prediction("math_reward") == "8");
  REQUIRE(prediction("math_dapo") == "<answer>9</answer>####10");
  REQUIRE(prediction("math_dapo", R"({"strict_box_verify": true})") == "8");
  REQUIRE(prediction("prime_math") == "<answer>9</answer>####10");
  REQUIRE(prediction("search_r1_like_qa_em") == "9");
  REQUIRE_FALSE(prediction("format", R"({"pattern": "x"})").has_value());
  for (const std::string& name : FunctionNames()) {
    const std::string args = name == "regex" ? R"({"pattern": "x"})" : "";
    const auto none = MakeScorer(name, args).value()(ItemToScore("", "7")).prediction;
    INFO(name);
    REQUIRE(none == (name == "math_dapo" ? "[INVALID]" : ""));
  }
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
  const absl::Status bare = MakeScorer("length", "").status();
  for (const char* argument : {"max_tokens", "buffer_tokens", "factor"}) {
    REQUIRE(bare.message().find(argument) != std::string::npos);
  }
  REQUIRE_FALSE(MakeScorer("math_dapo", R"({"strict_box_verify": 1})").ok());
  REQUIRE_FALSE(MakeScorer("search_r1_like_qa_em", R"({"subem": "yes"})").ok());
}

TEST_CASE("A pattern that explodes scores nothing instead of hanging", "[reward][registry]") {
  const std::string trap(5000, 'a');
  REQUIRE(Score("format", R"x({"pattern": "^(a+)+$"})x", ItemToScore(trap + "b", "")) == 0.0);
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
  REQUIRE(CheckTruth("math_reward", "\\frac12").ok());
  REQUIRE(CheckTruth("search_r1_like_qa_em", R"({"target": "a"})").ok());
  REQUIRE_FALSE(CheckTruth("search_r1_like_qa_em", R"({"answer": "a"})").ok());
  REQUIRE(Message(CheckTruth("last_integer", "abc")).find("needs an integer") != std::string::npos);
}

TEST_CASE("A reward section that cannot work is told with its keys", "[reward][registry]") {
  const auto check = [](const std::vector<std::string>& overrides) {
    const auto loaded = LoadConfig("", overrides);
    REQUIRE(loaded.ok());
    ConfigProblems problems(loaded->origins);
    CheckReward(loaded->config, problems);
    return Message(problems.status());
  };
  REQUIRE(check({}).empty());
  REQUIRE(check({"reward.function=regex", "reward.args={pattern: x}"}).empty());
  const std::string lacking = check({"reward.function=regex"});
  REQUIRE(lacking.find("reward.args: reward regex: needs the argument pattern") !=
          std::string::npos);
  const std::string unknown = check({"reward.function=last_integer", "reward.args={tolerence: 1}"});
  REQUIRE(unknown.find("reward.args: reward last_integer: unknown argument tolerence (known: none) "
                       "(reward.args at --set)") != std::string::npos);
  const std::string both = check({"reward.terms=[{name: format, args: {pattern: x}}, {name: nice}]",
                                  "reward.function=remote"});
  REQUIRE(both.find("reward.terms[1]: unknown reward nice") != std::string::npos);
  REQUIRE(both.find("(reward.terms at --set)") != std::string::npos);
  REQUIRE(both.find("reward.service_address is empty") != std::string::npos);
  REQUIRE(check({"reward.args={format_score: 0.1}"}).empty());  // auto: gsm8k takes it
  REQUIRE_FALSE(check({"reward.args={nobodys: 0.1}"}).empty());
  const std::string none = check({"reward.overlong_buffer.enable=true"});
  REQUIRE(none.find("reward.overlong_buffer.len: ") != std::string::npos);
  const std::string more = check({"reward.overlong_buffer.enable=true", "reward.max_resp_len=4",
                                  "reward.overlong_buffer.len=5"});
  REQUIRE(more.find("reward.overlong_buffer.len: ") != std::string::npos);
  REQUIRE(more.find("(reward.overlong_buffer.len at --set)") != std::string::npos);
  REQUIRE(more.find("5 tokens") != std::string::npos);
  REQUIRE(check({"reward.overlong_buffer.len=9999"}).empty());  // it is off
}
