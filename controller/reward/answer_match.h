// Comparing a response with its ground truth: pure functions of two texts.
#pragma once

#include <optional>
#include <string>

namespace tandem {

// Equal after both are stripped of surrounding white space.
bool ExactMatch(const std::string& response, const std::string& truth);

// The first or last run of decimal digits with an optional minus sign directly before it, as
// written ("007" stays "007"). A minus between a digit and a digit is a subtraction, not a sign.
std::optional<std::string> FirstInteger(const std::string& text);
std::optional<std::string> LastInteger(const std::string& text);
// Equal as integers: leading zeros, a plus sign and "-0" do not matter. False if either is none.
bool IntegersEqual(const std::string& a, const std::string& b);

// The last decimal number of the text ("1,234.50" reads as 1234.5), none if there is none.
std::optional<double> LastNumber(const std::string& text);
// The whole text, stripped, is one decimal number.
std::optional<double> WholeNumber(const std::string& text);

}  // namespace tandem
