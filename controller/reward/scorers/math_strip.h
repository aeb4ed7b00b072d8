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

}  // namespace tandem
