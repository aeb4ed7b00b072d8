#include "tests/common/text/tokenizer_json_builder.h"

#include <catch2/catch.hpp>

#include "common/text/bpe_model.h"

namespace tandem::testing {

nlohmann::json ByteTokenizerJson() {
  nlohmann::json vocab;
  for (int b = 0; b < 256; ++b) vocab[ByteLevelCharacter(static_cast<uint8_t>(b))] = b;
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return {{"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab c"}}}}};
}

nlohmann::json AddedTokenJson(int id, const std::string& content) {
  return {{"id", id},        {"content", content}, {"special", true},    {"single_word", false},
          {"lstrip", false}, {"rstrip", false},    {"normalized", false}};
}

std::unique_ptr<Tokenizer> MakeTokenizer(const nlohmann::json& json) {
  auto tokenizer = Tokenizer::FromJson(json.dump(), "test.json");
  INFO(tokenizer.status().ToString());
  REQUIRE(tokenizer.ok());
  return *std::move(tokenizer);
}

std::string LoadError(const nlohmann::json& json) {
  const auto tokenizer = Tokenizer::FromJson(json.dump(), "test.json");
  REQUIRE(!tokenizer.ok());
  REQUIRE(tokenizer.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(tokenizer.status().message());
}

}  // namespace tandem::testing
