// The tokens inside tags.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "common/text/jinja/lexer.h"

namespace tandem::jinja {

// The token at `pos`, which moves behind it. The caller skips white space and sets the line.
absl::StatusOr<Token> NextExpressionToken(const std::string& source, size_t& pos);

}  // namespace tandem::jinja
