#include "controller/reward/scorers/math_reward.h"

#include <catch2/catch.hpp>

using namespace tandem;  // NOLINT(google-build-using-namespace)

TEST_CASE("The last box is found with its braces balanced", "[reward][math]") {
  REQUIRE(LastBoxCommand("\\boxed{1}, then \\boxed{\\frac{1}{\\sqrt{2}}}.") ==
          "\\boxed{\\frac{1}{\\sqrt{2}}}");
  REQUIRE(LastBoxCommand("\\boxed{a{b}c}d}") == "\\boxed{a{b}c}");
  REQUIRE(LastBoxCommand("\\boxed{\xC3\xA9}\xC3\xA9") == "\\boxed{\xC3\xA9}");
  REQUIRE_FALSE(LastBoxCommand("no box").has_value());
  REQUIRE_FALSE(LastBoxCommand("").has_value());
  REQUIRE_FALSE(LastBoxCommand("\\boxed{1} and \\boxed{2").has_value());
  REQUIRE_FALSE(LastBoxCommand("\\boxed{{}").has_value());
}

TEST_CASE("A box without braces ends at a dollar sign and goes before all others",
          "[reward][math]") {
  REQUIRE(LastBoxCommand("$\\boxed 7$ is it") == "\\boxed 7");
  REQUIRE(LastBoxCommand("\\boxed 7 and \\boxed{8}") == "\\boxed 7 and \\boxed{8}");
  REQUIRE(ScoreMathReward("$\\boxed 7$", "7").score == 1);
}

TEST_CASE("An fbox is found but holds no answer", "[reward][math]") {
  REQUIRE(LastBoxCommand("\\fbox{3}") == "\\fbox{3}");
  REQUIRE(LastBoxCommand("\\boxed{2} \\fbox{3}") == "\\boxed{2}");
  REQUIRE_FALSE(OpenBox("\\fbox{3}").has_value());
  REQUIRE(ScoreMathReward("\\fbox{3}", "3").score == 0);
}

TEST_CASE("Fractions and roots in short hand equal those with braces", "[reward][math]") {
  REQUIRE(StripMathString("\\frac12") == "\\frac{1}{2}");
  REQUIRE(StripMathString("\\dfrac1{72}") == "\\frac{1}{72}");
  REQUIRE(StripMathString("\\tfrac{1}{2}") == "\\frac{1}{2}");
  REQUIRE(StripMathString("\\frac\xC2\xBD"
                          "3") == "\\frac{\xC2\xBD}{3}");
  REQUIRE(StripMathString("\\frac1") == "\\frac1");
  REQUIRE(StripMathString("\\sqrt3") == "\\sqrt{3}");
  REQUIRE(StripMathString("2\\sqrt{3}") == "2\\sqrt{3}");
  REQUIRE(StripMathString("3/4") == "\\frac{3}{4}");
  REQUIRE(StripMathString("-3/4") == "\\frac{-3}{4}");
  REQUIRE(StripMathString("0.5") == "\\frac{1}{2}");
  REQUIRE(StripMathString(".5") == "\\frac{1}{2}");
  REQUIRE(StripMathString("0.50") == "0.50");
  for (const std::string same : {"03/4", "+3/4", "a/4", "1/2/3", "3/-0"}) {
    REQUIRE(StripMathString(same) == same);
  }
}

TEST_CASE("Units, degrees, percent and left sides do not count", "[reward][math]") {
  REQUIRE(StripMathString("5\\text{ cm}") == "5");
  REQUIRE(StripMathString("5\\text{cm}") == "5\\text{cm}");
  REQUIRE(StripMathString("90^{\\circ}") == "90");
  REQUIRE(StripMathString("50\\%") == "50");
  REQUIRE(StripMathString("50%") == "50%");
  REQUIRE(StripMathString("\\$1,234") == "1,234");
  REQUIRE(StripMathString("x = 3") == "3");
  REQUIRE(StripMathString("xy=3") == "3");
  REQUIRE(StripMathString("xyz=3") == "xyz=3");
  REQUIRE(StripMathString("\xC3\xA9\xC3\xA9=3") == "3");  // two characters in four bytes
  REQUIRE(StripMathString("\\left( 1,\\, 2 \\right)") == "(1,\\,2)");
  REQUIRE(StripMathString("") == "");
}

TEST_CASE("What has no normal form is compared as it is", "[reward][math]") {
  for (const std::string text : {"\\frac", "1\\sqrt", "\\sqrt\\sqrt2", "\\text{ a}\\text{ b}"}) {
    INFO(text);
    REQUIRE_FALSE(StripMathString(text).has_value());
    REQUIRE(MathAnswersEqual(text, text));
  }
  REQUIRE_FALSE(MathAnswersEqual("\\frac", " \\frac"));
  REQUIRE(MathAnswersEqual("1 / 2", "\\frac12"));
  REQUIRE_FALSE(MathAnswersEqual("1", "2"));
}

TEST_CASE("MATH answers are judged by the last box alone", "[reward][math]") {
  const MathVerdict right = ScoreMathReward("\\boxed{1} no, \\boxed{\\frac 12}", "0.5");
  REQUIRE(right.score == 1);
  REQUIRE(right.pred == "\\frac{1}{2}");
  REQUIRE(ScoreMathReward("\\boxed{\\frac12} no, \\boxed{1}", "0.5").score == 0);
  REQUIRE(ScoreMathReward("it is 7", "7").score == 0);
  REQUIRE_FALSE(ScoreMathReward("it is 7", "7").pred.has_value());
  REQUIRE(ScoreMathReward("", "").score == 0);
  REQUIRE(ScoreMathReward("\\boxed{}", "").score == 1);
}

TEST_CASE("Boxes are found in a megabyte of braces", "[reward][math]") {
  std::string open, boxes;
  for (int i = 0; i < 200'000; ++i) boxes += "\\boxed{", open += '{';
  REQUIRE_FALSE(LastBoxCommand(boxes + open).has_value());
  REQUIRE(LastBoxCommand(boxes + "7}") == "\\boxed{7}");
  REQUIRE(ScoreMathReward(boxes + open + "\\boxed{7}", "7").score == 1);
  std::string fractions;
  for (int i = 0; i < 100'000; ++i) fractions += "\\frac12\\sqrt3";
  REQUIRE(StripMathString(fractions)->size() ==
          100'000 * std::string("\\frac{1}{2}\\sqrt{3}").size());
}
