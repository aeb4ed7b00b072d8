#include <catch2/catch.hpp>

#include "common/text/tokenizer.h"
#include "tests/common/text/tokenizer_json_builder.h"

namespace tandem::testing {

TEST_CASE("StreamDecoder holds the bytes of an unfinished character back", "[text]") {
  const auto tokenizer = MakeTokenizer(ByteTokenizerJson());
  StreamDecoder stream(*tokenizer, false);
  REQUIRE(stream.Push('a') == "a");
  REQUIRE(stream.Push(0xF0) == "");
  REQUIRE(stream.Push(0x9F) == "");
  REQUIRE(stream.has_pending());
  REQUIRE(stream.Push(0x98) == "");
  REQUIRE(stream.Push(0x80) == "\U0001f600");
  REQUIRE(!stream.has_pending());
  REQUIRE(stream.Finish() == "");
}

TEST_CASE("StreamDecoder replaces what cannot become a character as soon as that is certain",
          "[text]") {
  const auto tokenizer = MakeTokenizer(ByteTokenizerJson());
  StreamDecoder stream(*tokenizer, false);
  REQUIRE(stream.Push(0x80) == "\ufffd");
  REQUIRE(stream.Push(0xE4) == "");
  REQUIRE(stream.Push(0xB8) == "");
  REQUIRE(stream.Push('x') == "\ufffdx");
  REQUIRE(stream.Push(0xE4) == "");
  REQUIRE(stream.Finish() == "\ufffd");
}

TEST_CASE("StreamDecoder's pieces together equal the decoded text", "[text]") {
  const auto tokenizer = MakeTokenizer(ByteTokenizerJson());
  // Every sequence of three from a set of bytes that starts, continues and breaks characters.
  const std::vector<int32_t> bytes = {'a',  0x80, 0xBF, 0xC3, 0xE0, 0xA0,
                                      0xED, 0xF0, 0x90, 0xF4, 0xFF, 257};
  for (int32_t a : bytes) {
    for (int32_t b : bytes) {
      for (int32_t c : bytes) {
        const std::vector<int32_t> ids = {a, b, c, 'z'};
        StreamDecoder stream(*tokenizer, false);
        std::string text;
        for (int32_t id : ids) text += stream.Push(id);
        REQUIRE(text + stream.Finish() == tokenizer->Decode(ids, false));
      }
    }
  }
}

TEST_CASE("StreamDecoder skips special tokens when asked", "[text]") {
  nlohmann::json root = ByteTokenizerJson();
  root["added_tokens"] = {AddedTokenJson(300, "<s>")};
  const auto tokenizer = MakeTokenizer(root);
  StreamDecoder skipping(*tokenizer, true), keeping(*tokenizer, false);
  REQUIRE(skipping.Push(300) == "");
  REQUIRE(keeping.Push(300) == "<s>");
}

}  // namespace tandem::testing
