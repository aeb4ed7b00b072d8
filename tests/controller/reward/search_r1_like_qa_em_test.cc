#include "controller/reward/scorers/search_r1_like_qa_em.h"

#include <catch2/catch.hpp>

#include "tests/support/text.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)
using tandem::testing::Repeat;

TEST_CASE("Answers to questions are compared without case, articles and punctuation",
          "[reward][search]") {
  REQUIRE(NormalizeQaAnswer(" The  Eiffel-Tower, a \n an sight. ") == "eiffeltower sight");
  REQUIRE(NormalizeQaAnswer("theatre banana an") == "theatre banana");
  REQUIRE(NormalizeQaAnswer("\xC3\x89"
                            "COLE the\xC3\xA9") ==
          "\xC3\xA9"
          "cole the\xC3\xA9");
  const std::string left = "\xE2\x80\x9C", right = "\xE2\x80\x9D";  // no ASCII: kept
  REQUIRE(NormalizeQaAnswer("a.b a_b " + left + "a" + right) == "ab ab " + left + " " + right);
  REQUIRE(NormalizeQaAnswer("").empty());
  REQUIRE(MatchesTarget("The Paris.", {"rome", "paris"}));
  REQUIRE_FALSE(MatchesTarget("Paris, France", {"paris"}));
  REQUIRE(ContainsTarget("Paris, France", {"paris"}));
  REQUIRE_FALSE(ContainsTarget("Par is", {"paris"}));
  REQUIRE_FALSE(MatchesTarget("x", {}));
}

TEST_CASE("The last pair of answer tags holds the answer", "[reward][search]") {
  REQUIRE(LastTaggedAnswer("<answer>1</answer> <answer>\n 2 </answer>") == "2");
  REQUIRE(LastTaggedAnswer("<answer>1</answer> <answer>2") == "1");
  REQUIRE(LastTaggedAnswer("<answer>a<answer>b</answer>c</answer>") == "a<answer>b");
  REQUIRE_FALSE(LastTaggedAnswer("</answer>1<answer>").has_value());
  REQUIRE_FALSE(LastTaggedAnswer("").has_value());
  REQUIRE_FALSE(LastTaggedAnswer(Repeat("<answer>", 300'000)).has_value());
}

TEST_CASE("A wrong answer in tags has the format score, none has nothing", "[reward][search]") {
  const QaOptions options{.format_score = 0.1, .score = 2};
  REQUIRE(ScoreSearchQa("<answer>Paris</answer>", {"paris"}, options) == 2);
  REQUIRE(ScoreSearchQa("<answer>Rome</answer>", {"paris"}, options) == 0.1);
  REQUIRE(ScoreSearchQa("Paris", {"paris"}, options) == 0);
  const QaOptions part{.part = true};
  REQUIRE(ScoreSearchQa("<answer>in Paris</answer>", {"paris"}, part) == 1);
  REQUIRE(ScoreSearchQa("<answer>in Paris</answer>", {"paris"}) == 0);
}

TEST_CASE("More than ten tags leave a quarter of the score", "[reward][search]") {
  const std::string tags = "<answer>Paris</answer>";
  REQUIRE(ScoreSearchQa(Repeat(tags, 10), {"paris"}) == 1);
  REQUIRE(ScoreSearchQa(Repeat(tags, 11), {"paris"}) == 0.25);
  REQUIRE(ScoreSearchQa(tags + Repeat("</answer>", 10), {"paris"}) == 0.25);
  REQUIRE(ScoreSearchQa(Repeat(tags, 11), {"paris"}, {.part = true}) == 1);
}

TEST_CASE("Targets come as an object, a list or a text", "[reward][search]") {
  using Texts = std::vector<std::string>;
  REQUIRE(QaTargets(R"({"target": ["a", "b"]})") == Texts{"a", "b"});
  REQUIRE(QaTargets(R"({"target": "a"})") == Texts{"a"});
  REQUIRE(QaTargets(R"({"target": [1999]})") == Texts{"1999"});
  REQUIRE(QaTargets(R"(["a", "b"])") == Texts{"a", "b"});
  REQUIRE(QaTargets("Paris") == Texts{"Paris"});
  REQUIRE(QaTargets("1999") == Texts{"1999"});
  REQUIRE(QaTargets(R"({"answer": "a"})").empty());
  REQUIRE(QaTargets(R"({"target": []})").empty());
}
