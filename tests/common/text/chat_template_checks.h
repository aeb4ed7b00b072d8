// Checks of golden cases of the family `chat_templates`, for the external and the committed set.
#pragma once

#include <map>
#include <string>

#include "tests/support/golden.h"

namespace tandem::testing {

std::map<std::string, GoldenCheck> ChatTemplateChecks();

}  // namespace tandem::testing
