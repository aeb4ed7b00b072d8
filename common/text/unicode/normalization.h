// Unicode normalization form C (Unicode Standard Annex #15).
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// Needs valid UTF-8. ASCII text comes back unchanged at the cost of one scan.
std::string NormalizeNfc(std::string_view text);

}  // namespace tandem
