#include "controller/reward/scorers/math_dapo.h"

#include <catch2/catch.hpp>

#include "tests/support/text.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)
using tandem::testing::Repeat;

TEST_CASE("math_dapo takes the last answer line, in any case", "[reward][dapo]") {
  REQUIRE(ScoreMathDapo("Answer: 3\nANSWER : 4", "4").correct);
  REQUIRE_FALSE(ScoreMathDapo("Answer: 4\nAnswer: 3", "4").correct);
  REQUIRE(ScoreMathDapo("Answer:\n 7\nso", "7").pred == "7");
  // One line is one answer.
  REQUIRE(ScoreMathDapo("Answer: 1 Answer: 2", "2").pred == "1Answer:2");
  REQUIRE(ScoreMathDapo("Answer: 5", "5").score == 1);
  REQUIRE(ScoreMathDapo("Answer: 6", "5").score == -1);
}

TEST_CASE("math_dapo falls back to a box that it compares as written", "[reward][dapo]") {
  REQUIRE(ScoreMathDapo("so \\boxed{7}", "7").correct);
  REQUIRE(ScoreMathDapo("so \\boxed{\\frac12}", "\\frac{1}{2}").pred == "\\frac12");
  REQUIRE_FALSE(ScoreMathDapo("so \\boxed{\\frac12}", "\\frac{1}{2}").correct);
  REQUIRE_FALSE(ScoreMathDapo("Answer: 8 \\boxed{7}", "7").correct);
  REQUIRE(ScoreMathDapo("nothing", "7").pred == "[INVALID]");
  REQUIRE(ScoreMathDapo("\\boxed{7", "7").pred == "[INVALID]");
  REQUIRE(ScoreMathDapo("", "7").score == -1);
}

TEST_CASE("A strict box is the only answer", "[reward][dapo]") {
  REQUIRE(ScoreMathDapo("\\boxed{7}", "7", true).score == 1);
  REQUIRE_FALSE(ScoreMathDapo("Answer: 7", "7", true).correct);
  REQUIRE_FALSE(ScoreMathDapo("Answer: 7", "7", true).pred.has_value());
  REQUIRE_FALSE(ScoreMathDapo("\\boxed{ 7}", "7", true).correct);
  REQUIRE(ScoreMathDapo("\\boxed{1}\\boxed{a{b}}", "a{b}", true).correct);
}

TEST_CASE("math_dapo looks at the last 300 and 100 characters, not bytes", "[reward][dapo]") {
  const std::string wide = "\xC3\xA9";
  REQUIRE(ScoreMathDapo("Answer:7\n" + Repeat(wide, 291), "7").correct);
  REQUIRE_FALSE(ScoreMathDapo("Answer:7\n" + Repeat(wide, 292), "7").correct);
  REQUIRE(ScoreMathDapo("\\boxed{7}" + Repeat(wide, 91), "7", true).correct);
  REQUIRE_FALSE(ScoreMathDapo("\\boxed{7}" + Repeat(wide, 92), "7", true).correct);
}

TEST_CASE("The normal form of a final answer keeps what is compared", "[reward][dapo]") {
  REQUIRE(NormalizeFinalAnswer(" x = 5 square inches") == "5");
  REQUIRE(NormalizeFinalAnswer("an $x$ or $y$") == "x");
  REQUIRE(NormalizeFinalAnswer("one $") == "one");
  REQUIRE(NormalizeFinalAnswer("\\text{\\text{a}}") == "\\text{a}");
  REQUIRE(NormalizeFinalAnswer("\\text{a}\\textbf{b}\\overline{c}") == "abc");
  REQUIRE(NormalizeFinalAnswer("\\boxed{1}{2}") == "1}{2");
  REQUIRE(NormalizeFinalAnswer("\\frac12 \\sqrt3") == "\\frac{1}{2}\\sqrt{3}");
  REQUIRE(NormalizeFinalAnswer("\\frac1") == "\\frac1");
  REQUIRE(NormalizeFinalAnswer("1,234,567") == "1234567");
  REQUIRE(NormalizeFinalAnswer("1,234.5") == "1,234.5");
  REQUIRE(NormalizeFinalAnswer("\xEF\xBC\x91,\xC2\xB2") == "\xEF\xBC\x91\xC2\xB2");  // digits too
  REQUIRE(NormalizeFinalAnswer("issues") == "iss");  // as verl has it
  REQUIRE(NormalizeFinalAnswer("50\\%") == "50\\%");
  REQUIRE(NormalizeFinalAnswer("") == "");
  REQUIRE(NormalizeFinalAnswer("=") == "");
}

TEST_CASE("A normal form is made of a megabyte", "[reward][dapo]") {
  REQUIRE(NormalizeFinalAnswer(Repeat("\\text{", 200'000)) == Repeat("\\text{", 200'000));
  REQUIRE(NormalizeFinalAnswer(Repeat("\\boxed{", 200'000) + "}") == Repeat("\\boxed{", 199'999));
  REQUIRE(NormalizeFinalAnswer(Repeat("1,", 500'000)) == Repeat("1", 500'000));
  REQUIRE(ScoreMathDapo(Repeat("Answer: ", 200'000) + "\nAnswer: 7", "7").correct);
}
