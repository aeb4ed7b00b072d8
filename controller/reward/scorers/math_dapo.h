// The normal form in which math_dapo compares answers (Lewkowycz et al. 2022, "Solving
// Quantitative Reasoning Problems with Language Models", appendix D.1; golden kind
// math_dapo.normalize_final_answer).
#pragma once

#include <optional>
#include <string>

namespace tandem {

// What follows the last "=", without articles, units, white space, dollar signs and LaTeX
// decoration; \frac12 as \frac{1}{2}, \sqrt2 as \sqrt{2}, 1,000 as 1000. Words are removed wherever
// they stand, also inside others ("issues" becomes "iss"), as verl does. Linear in the length.
std::string NormalizeFinalAnswer(const std::string& answer);

// Answers to competition problems as verl's math_dapo judges them (Yu et al. 2025, DAPO; golden
// kind math_dapo).
struct DapoVerdict {
  double score = -1;  // 1 or -1
  bool correct = false;
  std::optional<std::string> pred;  // what was compared; none: strict, and there is no box
};

// Looks at the last 300 code points. The answer is what follows the last "Answer:" (any case) up to
// the end of its line, compared with `truth` in the form of NormalizeFinalAnswer. Without one, and
// always where `strict_box`, it is the inside of the last \boxed{...} within the last 100 code
// points, compared as it is written. Neither: pred is "[INVALID]".
DapoVerdict ScoreMathDapo(const std::string& response,
                          const std::string& truth,
                          bool strict_box = false);

}  // namespace tandem
