// Scores answers to Numina problems by the part of verl's prime_math that compares text (golden
// kind prime_math.normalize_answer). verl also compares answers with different normal forms as
// formulas, with a computer algebra system, which Tandem does not have.
#pragma once

#include <optional>
#include <string>

namespace tandem {

// The content of an enclosing \text{...}, in the form of StripMathString or, if it has none, as it
// is. Without white space at both ends.
std::string NormalizePrimeAnswer(const std::string& answer);

// The answer in a response, found with verl's rules in verl's order: the text after "answer is" and
// similar phrases, the last box, the text after the last "is ", "=" and similar markers.
std::string ExtractPrimeAnswer(const std::string& response);

struct PrimeVerdict {
  double score = 0;  // 1 or 0
  std::string pred;  // the normal form of the answer
};
PrimeVerdict ScorePrimeMath(const std::string& response, const std::string& truth);

}  // namespace tandem
