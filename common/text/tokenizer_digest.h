// Identity of a tokenizer, so that two processes can tell that they agree on ids.
#pragma once

#include <string>

namespace tandem {

struct TokenizerSpec;

// 32 hex digits.
std::string TokenizerDigest(const TokenizerSpec& spec);

}  // namespace tandem
