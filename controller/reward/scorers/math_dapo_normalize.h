// The normal form in which math_dapo compares answers (Lewkowycz et al. 2022, "Solving
// Quantitative Reasoning Problems with Language Models", appendix D.1; golden kind
// math_dapo.normalize_final_answer).
#pragma once

#include <string>

namespace tandem {

// What follows the last "=", without articles, units, white space, dollar signs and LaTeX
// decoration; \frac12 as \frac{1}{2}, \sqrt2 as \sqrt{2}, 1,000 as 1000. Words are removed wherever
// they stand, also inside others ("issues" becomes "iss"), as verl does. Linear in the length.
std::string NormalizeFinalAnswer(const std::string& answer);

}  // namespace tandem
