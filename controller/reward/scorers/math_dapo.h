// Answers to competition problems as verl's math_dapo judges them (Yu et al. 2025, DAPO; golden
// kind math_dapo).
#pragma once

#include <optional>
#include <string>

namespace tandem {

struct DapoVerdict {
  double score = -1;  // 1 or -1
  bool correct = false;
  std::optional<std::string> pred;  // what was compared; none: strict, and there is no box
};

// Looks at the last 300 code points. The answer is what follows the last "Answer:" (any case) up to
// the end of its line, compared with `truth` in the form of math_dapo_normalize.h. Without one, and
// always where `strict_box`, it is the inside of the last \boxed{...} within the last 100 code
// points, compared as it is written. Neither: pred is "[INVALID]".
DapoVerdict ScoreMathDapo(const std::string& response,
                          const std::string& truth,
                          bool strict_box = false);

}  // namespace tandem
