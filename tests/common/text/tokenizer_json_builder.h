// Small tokenizer.json texts for tests.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "common/text/tokenizer.h"

namespace tandem::testing {

// Byte-level BPE over all 256 bytes (id = byte value) with the merges "a b" and "ab c".
nlohmann::json ByteTokenizerJson();

// An added token that matches raw text and is special.
nlohmann::json AddedTokenJson(int id, const std::string& content);

// Loads, with REQUIRE.
std::unique_ptr<Tokenizer> MakeTokenizer(const nlohmann::json& json);

// The message of the failed load, with REQUIRE that it fails.
std::string LoadError(const nlohmann::json& json);

}  // namespace tandem::testing
