// Answers to MATH problems as verl's math_reward judges them: the last box of the response against
// the ground truth, both in the normal form of math_strip.h (golden kind math_reward).
#pragma once

#include <optional>
#include <string>

namespace tandem {

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
