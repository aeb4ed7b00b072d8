// The normal form in which answers of the MATH data set are compared (Hendrycks et al. 2021,
// "Measuring Mathematical Problem Solving With the MATH Dataset", its math_equivalence; verl's
// math_reward and prime_math use the same one, golden kinds math_reward.strip_string and
// prime_math.normalize_answer).
#pragma once

#include <optional>
#include <string>

namespace tandem {

// Drops line breaks, \!, \left, \right, degrees, \$, \%, spaces and what follows "\text{ " (a
// unit); writes tfrac and dfrac as frac, ".5" as "0.5", "x=3" as "3" (one "=", at most two
// characters before it), \frac12 as \frac{1}{2}, \sqrt3 as \sqrt{3}, 0.5 and a/b as fractions.
// None where the form has no meaning: \frac or \sqrt at the end, two units.
std::optional<std::string> StripMathString(const std::string& text);

// Answers to MATH problems as verl's math_reward judges them: the last box of the response against
// the ground truth, both in the normal form of StripMathString (golden kind math_reward).

// The last answer with its command: "\boxed x" up to the next dollar sign where the text has a
// "\boxed " anywhere, else the last \boxed with balanced braces, else the last \fbox. None: no
// such command, or its braces never close. Linear in the length.
std::optional<std::string> LastBoxCommand(const std::string& text);

// The answer inside such a command. None for an \fbox, which verl finds but does not open, and for
// a \boxed that no brace follows.
std::optional<std::string> OpenBox(const std::string& command);

// Equal in their normal forms; as they are where one of them has none.
bool MathAnswersEqual(const std::string& a, const std::string& b);

struct MathVerdict {
  double score = 0;                 // 1 or 0
  std::optional<std::string> pred;  // the answer in its normal form
};
MathVerdict ScoreMathReward(const std::string& response, const std::string& truth);

}  // namespace tandem
