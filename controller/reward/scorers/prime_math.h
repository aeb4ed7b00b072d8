// Answers to Numina problems as far as verl's prime_math judges them by text (golden kind
// prime_math.normalize_answer). Where the normal forms differ verl goes on to compare the two as
// formulas with a computer algebra system; there is none here.
#pragma once

#include <optional>
#include <string>

namespace tandem {

// The inside of an enclosing \text{...}, then the form of math_reward.h; where that has no meaning
// the text as it was before it. Without white space at both ends.
std::string NormalizePrimeAnswer(const std::string& answer);

// What a response gives as its answer: behind "answer is" and the like, the last box, behind the
// last "is ", "=" and the like, in verl's order.
std::string ExtractPrimeAnswer(const std::string& response);

struct PrimeVerdict {
  double score = 0;  // 1 or 0
  std::string pred;  // the normal form of the answer
};
PrimeVerdict ScorePrimeMath(const std::string& response, const std::string& truth);

}  // namespace tandem
