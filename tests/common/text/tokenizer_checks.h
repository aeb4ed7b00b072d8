// Checks of golden cases of the family `tokenizers`, for the external and the committed set.
#pragma once

#include <map>
#include <string>

#include "common/text/tokenizer.h"
#include "tests/support/golden.h"

namespace tandem::testing {

std::map<std::string, GoldenCheck> TokenizerChecks();

// Loads once per path; `path` is relative to the family's folder.
const Tokenizer& GoldenTokenizer(const GoldenFamily& family, const std::string& path);

}  // namespace tandem::testing
