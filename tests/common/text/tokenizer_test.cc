#include "common/text/tokenizer.h"

#include <thread>

#include <catch2/catch.hpp>

#include "tests/common/text/tokenizer_json_builder.h"

namespace tandem::testing {
namespace {

using Ids = std::vector<int32_t>;
using nlohmann::json;

Ids Encode(const Tokenizer& tokenizer, const std::string& text, bool add_special_tokens = false) {
  const auto ids = tokenizer.Encode(text, add_special_tokens);
  INFO(ids.status().ToString());
  REQUIRE(ids.ok());
  return *ids;
}

Ids Bytes(const std::string& text) {
  Ids ids;
  for (char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

}  // namespace

TEST_CASE("Tokenizer loads a model directory with its settings", "[text]") {
  const auto tokenizer = Tokenizer::Load("tests/data/text/tiny");
  REQUIRE(tokenizer.ok());
  REQUIRE((*tokenizer)->bos_token() == "<|turn|>");
  REQUIRE((*tokenizer)->eos_token() == "<|close|>");
  REQUIRE((*tokenizer)->eos_token_ids() == Ids{0, 2});
  REQUIRE((*tokenizer)->chat_template().has_value());
  REQUIRE((*tokenizer)->TokenId("<tool>") == 319);
  REQUIRE((*tokenizer)->TokenText(1) == "<|turn|>");
  // The first is a special token, the second only an added one.
  REQUIRE((*tokenizer)->Decode(Ids{1, 319}, /*skip_special_tokens=*/true) == "<tool>");
  REQUIRE((*tokenizer)->vocab_size() == 320);
  REQUIRE((*tokenizer)->digest().size() == 32);
}

TEST_CASE("Tokenizer merges by rank and decodes what it encoded", "[text]") {
  const auto tokenizer = MakeTokenizer(ByteTokenizerJson());
  REQUIRE(Encode(*tokenizer, "abcab") == Ids{257, 256});
  for (const std::string text : {"", " ", "caf\u00e9 \u4e2d\u6587 \U0001f600\r\n\t", "it's 12"}) {
    REQUIRE(tokenizer->Decode(Encode(*tokenizer, text), false) == text);
  }
}

TEST_CASE("Tokenizer reads merges in both forms", "[text]") {
  json pairs = ByteTokenizerJson();
  pairs["model"]["merges"] = json::array({json::array({"a", "b"}), json::array({"ab", "c"})});
  REQUIRE(Encode(*MakeTokenizer(pairs), "abc") == Ids{257});
  REQUIRE(MakeTokenizer(pairs)->digest() == MakeTokenizer(ByteTokenizerJson())->digest());
}

TEST_CASE("Tokenizer takes a whole word as a token when merges are ignored", "[text]") {
  json root = ByteTokenizerJson();
  root["model"]["vocab"]["xyz"] = 258;
  REQUIRE(Encode(*MakeTokenizer(root), "xyz") == Bytes("xyz"));
  root["model"]["ignore_merges"] = true;
  REQUIRE(Encode(*MakeTokenizer(root), "xyz") == Ids{258});
}

TEST_CASE("Tokenizer finds added tokens by their flags", "[text]") {
  json root = ByteTokenizerJson();
  json strip = AddedTokenJson(300, "<s>");
  strip["lstrip"] = strip["rstrip"] = true;
  json word = AddedTokenJson(301, "tool");
  word["single_word"] = true;
  root["added_tokens"] = {strip, word, AddedTokenJson(302, "<s><s>")};
  const auto tokenizer = MakeTokenizer(root);
  REQUIRE(Encode(*tokenizer, "a \n<s>  b") == Ids{'a', 300, 'b'});
  REQUIRE(Encode(*tokenizer, "<s><s>") == Ids{302});
  REQUIRE(Encode(*tokenizer, "tool.tools") == Ids{301, '.', 't', 'o', 'o', 'l', 's'});
  REQUIRE(tokenizer->vocab_size() == 303);
  REQUIRE(tokenizer->Decode(Ids{'a', 300, 'b'}, true) == "ab");
  REQUIRE(tokenizer->Decode(Ids{'a', 300, 'b'}, false) == "a<s>b");
}

TEST_CASE("Tokenizer adds the post-processor's tokens only when asked", "[text]") {
  json root = ByteTokenizerJson();
  root["added_tokens"] = {AddedTokenJson(300, "<s>"), AddedTokenJson(301, "</s>")};
  root["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<s>"}}}},
        {{"Sequence", {{"id", "A"}}}},
        {{"SpecialToken", {{"id", "</s>"}}}}}},
      {"special_tokens", {{"<s>", {{"ids", {300}}}}, {"</s>", {{"ids", {301}}}}}}};
  const auto tokenizer = MakeTokenizer(root);
  REQUIRE(Encode(*tokenizer, "x", true) == Ids{300, 'x', 301});
  REQUIRE(Encode(*tokenizer, "x", false) == Ids{'x'});
}

TEST_CASE("Tokenizer normalizes to NFC where the file says so", "[text]") {
  json root = ByteTokenizerJson();
  const std::string decomposed = "e\u0301", composed = "\u00e9";
  REQUIRE(Encode(*MakeTokenizer(root), decomposed) == Bytes(decomposed));
  root["normalizer"] = {{"type", "NFC"}};
  REQUIRE(Encode(*MakeTokenizer(root), decomposed) == Bytes(composed));
}

TEST_CASE("Tokenizer splits by the file's pattern and behaviour", "[text]") {
  const auto ids_with = [](const std::string& behavior) {
    json root = ByteTokenizerJson();
    // "ab" merges only where no split falls between a and b.
    root["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"String", "b"}}}, {"behavior", behavior}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
    return Encode(*MakeTokenizer(root), "xabab");
  };
  REQUIRE(ids_with("Isolated") == Bytes("xabab"));
  REQUIRE(ids_with("MergedWithPrevious") == Ids{'x', 256, 256});
  REQUIRE(ids_with("MergedWithNext") == Bytes("xabab"));
  REQUIRE(ids_with("Removed") == Bytes("xaa"));
}

TEST_CASE("Tokenizer decodes runs of byte-fallback tokens", "[text]") {
  json vocab = {{"\u2581", 0}, {"a", 1}, {"\u2581a", 2}};
  vocab["<0xC3>"] = 3;
  vocab["<0xA9>"] = 4;
  const json space = {{"String", "\u2581"}};
  const json root = {
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", "\u2581"}},
          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", space}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"\u2581 a"}}, {"byte_fallback", true}}}};
  const auto tokenizer = MakeTokenizer(root);
  REQUIRE(Encode(*tokenizer, "a a\u00e9") == Ids{2, 2, 3, 4});
  REQUIRE(tokenizer->Decode(Ids{2, 2, 3, 4}, false) == "a a\u00e9");
  REQUIRE(tokenizer->Decode(Ids{2, 3, 1}, false) == "a\ufffda");
}

TEST_CASE("Tokenizer's digest follows the content, not the formatting", "[text]") {
  const json root = ByteTokenizerJson();
  const auto compact = Tokenizer::FromJson(root.dump(), "a");
  const auto indented = Tokenizer::FromJson(root.dump(2), "b");
  REQUIRE((*compact)->digest() == (*indented)->digest());
  json changed = root;
  changed["pre_tokenizer"]["use_regex"] = false;
  REQUIRE(MakeTokenizer(changed)->digest() != (*compact)->digest());
  changed = root;
  changed["added_tokens"] = {AddedTokenJson(300, "<s>")};
  REQUIRE(MakeTokenizer(changed)->digest() != (*compact)->digest());
}

TEST_CASE("Tokenizer leaves unknown ids out and refuses text that is not UTF-8", "[text]") {
  const auto tokenizer = MakeTokenizer(ByteTokenizerJson());
  REQUIRE(tokenizer->Decode(Ids{-1, 'a', 5000}, false) == "a");
  const auto ids = tokenizer->Encode("a\xff", false);
  REQUIRE(ids.status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Tokenizer encodes from several threads alike", "[text]") {
  const auto tokenizer = MakeTokenizer(ByteTokenizerJson());
  std::string text;
  for (int i = 0; i < 500; ++i) text += " word" + std::to_string(i) + " abcab";
  const Ids expected = Encode(*tokenizer, text);
  std::vector<Ids> results(4);
  {
    std::vector<std::jthread> threads;
    for (Ids& result : results) {
      threads.emplace_back([&] { result = tokenizer->Encode(text, false).value(); });
    }
  }
  for (const Ids& result : results) REQUIRE(result == expected);
}

}  // namespace tandem::testing
