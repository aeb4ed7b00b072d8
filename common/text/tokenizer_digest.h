// Identity of a tokenizer, so that two processes can tell that they agree on ids.
#pragma once

#include <string>

#include "common/text/tokenizer_json.h"

namespace tandem {

// 32 hex digits.
std::string TokenizerDigest(const TokenizerSpec& spec);

}  // namespace tandem
