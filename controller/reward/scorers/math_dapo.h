// Scores answers to competition problems as verl's math_dapo does (Yu et al. 2025, DAPO; golden
// kind math_dapo).
#pragma once

#include <optional>
#include <string>

namespace tandem {

// The normal form in which math_dapo compares answers (Lewkowycz et al. 2022, "Solving Quantitative
// Reasoning Problems with Language Models", appendix D.1; golden kind
// math_dapo.normalize_final_answer): the text after the last "=", without articles, units, white
// space, dollar signs and LaTeX decoration; \frac12 as \frac{1}{2}, \sqrt2 as \sqrt{2}, 1,000 as
// 1000. As in verl, words are also removed inside other words ("issues" becomes "iss"). Linear in
// the length.
std::string NormalizeFinalAnswer(const std::string& answer);

struct DapoVerdict {
  double score = -1;  // 1 or -1
  bool correct = false;
  std::optional<std::string> pred;  // the compared answer; nullopt: strict, and there is no box
};

// Searches the last 300 code points. The answer is the text after the last "Answer:" (any case) up
// to the end of its line, compared with `truth` in the form of NormalizeFinalAnswer. Without such a
// line, and always with `strict_box`, the answer is the content of the last \boxed{...} within the
// last 100 code points, compared as written. Without either, pred is "[INVALID]".
DapoVerdict ScoreMathDapo(const std::string& response,
                          const std::string& truth,
                          bool strict_box = false);

}  // namespace tandem
