// Scores answers to MATH problems as verl's math_reward does: compares the last box of the response
// with the ground truth, both in normal form (golden kind math_reward).
#pragma once

#include <optional>
#include <string>

namespace tandem {

// The normal form in which answers of the MATH data set are compared (Hendrycks et al. 2021,
// "Measuring Mathematical Problem Solving With the MATH Dataset", its math_equivalence; verl's
// math_reward and prime_math use the same form, golden kinds math_reward.strip_string and
// prime_math.normalize_answer). Removes line breaks, \!, \left, \right, degrees, \$, \%, spaces and
// everything after "\text{ " (a unit); writes tfrac and dfrac as frac, ".5" as "0.5", "x=3" as "3"
// (one "=", at most two characters before it), \frac12 as \frac{1}{2}, \sqrt3 as \sqrt{3}, 0.5 and
// a/b as fractions. nullopt: the text has no normal form, because it ends in \frac or \sqrt or has
// two units.
std::optional<std::string> StripMathString(const std::string& text);

// The last answer with its command: "\boxed x" up to the next dollar sign if the text has a "\boxed
// " anywhere, else the last \boxed with balanced braces, else the last \fbox. nullopt: there is no
// such command, or its braces are not closed. Linear in the length.
std::optional<std::string> LastBoxCommand(const std::string& text);

// The answer inside such a command. nullopt: for an \fbox, which verl finds but does not open, and
// for a \boxed without a brace.
std::optional<std::string> OpenBox(const std::string& command);

// Compares normal forms, or the texts themselves if either has no normal form.
bool MathAnswersEqual(const std::string& a, const std::string& b);

struct MathVerdict {
  double score = 0;                 // 1 or 0
  std::optional<std::string> pred;  // the answer in its normal form
};
MathVerdict ScoreMathReward(const std::string& response, const std::string& truth);

}  // namespace tandem
