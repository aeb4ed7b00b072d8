#include "tests/common/text/tokenizer_checks.h"

#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "common/text/tokenizer.h"

namespace tandem::testing {
namespace {

using Ids = std::vector<int32_t>;

const Tokenizer& Of(const GoldenFamily& family, const GoldenCase& c) {
  return GoldenTokenizer(family, c.options.at("tokenizer").get<std::string>());
}

Ids EncodeChecked(const Tokenizer& tokenizer, const std::string& text, bool add_special_tokens) {
  const auto ids = tokenizer.Encode(text, add_special_tokens);
  INFO(ids.status().ToString());
  REQUIRE(ids.ok());
  return *ids;
}

void CheckEncode(const GoldenFamily& family, const GoldenCase& c) {
  const Tokenizer& tokenizer = Of(family, c);
  const std::string text = c.inputs.at("text").get<std::string>();
  REQUIRE(EncodeChecked(tokenizer, text, true) == c.outputs.at("ids").get<Ids>());
  // The decoded texts belong to the ids without the post-processor's tokens.
  const Ids ids = EncodeChecked(tokenizer, text, false);
  REQUIRE(ids == c.outputs.at("ids_without_special").get<Ids>());
  REQUIRE(tokenizer.Decode(ids, false) == c.outputs.at("decoded_keep_special").get<std::string>());
  REQUIRE(tokenizer.Decode(ids, true) == c.outputs.at("decoded_skip_special").get<std::string>());
}

void CheckDecode(const GoldenFamily& family, const GoldenCase& c) {
  const Tokenizer& tokenizer = Of(family, c);
  const Ids ids = c.inputs.at("ids").get<Ids>();
  REQUIRE(tokenizer.Decode(ids, false) == c.outputs.at("keep_special").get<std::string>());
  REQUIRE(tokenizer.Decode(ids, true) == c.outputs.at("skip_special").get<std::string>());
}

// Every prefix decodes as listed, and the streamed text is a prefix of each later decode.
void CheckPrefixes(const GoldenFamily& family, const GoldenCase& c) {
  const Tokenizer& tokenizer = Of(family, c);
  const Ids ids = c.inputs.at("ids").get<Ids>();
  const auto texts = c.outputs.at("texts").get<std::vector<std::string>>();
  const size_t offset = texts.size() == ids.size() ? 1 : 0;  // whether the empty prefix is listed
  StreamDecoder stream(tokenizer, /*skip_special_tokens=*/false);
  std::string streamed;
  for (size_t i = 0; i < texts.size(); ++i) {
    const size_t length = i + offset;
    if (length > 0) streamed += stream.Push(ids[length - 1]);
    REQUIRE(tokenizer.Decode(std::span(ids).first(length), false) == texts[i]);
    REQUIRE(texts[i].starts_with(streamed));
    if (!stream.has_pending()) REQUIRE(streamed == texts[i]);
  }
  REQUIRE(streamed + stream.Finish() == tokenizer.Decode(ids, false));
}

}  // namespace

const Tokenizer& GoldenTokenizer(const GoldenFamily& family, const std::string& path) {
  static std::map<std::string, std::unique_ptr<Tokenizer>> loaded;
  std::unique_ptr<Tokenizer>& entry = loaded[(family.dir / path).string()];
  if (entry == nullptr) {
    auto tokenizer = Tokenizer::FromFile((family.dir / path).string());
    INFO(tokenizer.status().ToString());
    REQUIRE(tokenizer.ok());
    entry = *std::move(tokenizer);
  }
  return *entry;
}

std::map<std::string, GoldenCheck> TokenizerChecks() {
  return {{"tokenizer", CheckEncode},
          {"tokenizer_decode", CheckDecode},
          {"tokenizer_decode_prefixes", CheckPrefixes}};
}

}  // namespace tandem::testing
