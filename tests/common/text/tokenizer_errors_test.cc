// The errors for a broken or unsuitable tokenizer.json.
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/text/tokenizer.h"
#include "tests/common/text/tokenizer_json_builder.h"

namespace tandem::testing {
namespace {

using Catch::Matchers::Contains;
using nlohmann::json;

}  // namespace

TEST_CASE("Tokenizer without merges is refused with file and remedy", "[text]") {
  json root = ByteTokenizerJson();
  root["model"]["merges"] = json::array();
  REQUIRE_THAT(LoadError(root),
               Contains("test.json") && Contains("no merges") && Contains("use a checkpoint"));
  root["model"].erase("merges");
  REQUIRE_THAT(LoadError(root), Contains("no merges"));
}

TEST_CASE("Tokenizer of another type is refused by name", "[text]") {
  json root = ByteTokenizerJson();
  root["model"]["type"] = "Unigram";
  REQUIRE_THAT(LoadError(root), Contains("Unigram"));
  root = ByteTokenizerJson();
  root["normalizer"] = {{"type", "NFKC"}};
  REQUIRE_THAT(LoadError(root), Contains("NFKC"));
  root = ByteTokenizerJson();
  root["pre_tokenizer"] = {{"type", "Metaspace"}};
  REQUIRE_THAT(LoadError(root), Contains("Metaspace"));
  root = ByteTokenizerJson();
  root["decoder"] = {{"type", "WordPiece"}};
  REQUIRE_THAT(LoadError(root), Contains("WordPiece"));
  root = ByteTokenizerJson();
  root["post_processor"] = {{"type", "BertProcessing"}};
  REQUIRE_THAT(LoadError(root), Contains("BertProcessing"));
}

TEST_CASE("Tokenizer with contradictions in its ids is refused", "[text]") {
  json root = ByteTokenizerJson();
  root["model"]["vocab"]["ab"] = 5;
  REQUIRE_THAT(LoadError(root), Contains("id 5"));
  root = ByteTokenizerJson();
  root["model"]["vocab"]["ab"] = -3;
  REQUIRE_THAT(LoadError(root), Contains("impossible id -3"));
  for (const double id : {4.52e14, 1.5}) {
    root["model"]["vocab"]["ab"] = id;
    REQUIRE_THAT(LoadError(root), Contains("test.json") && Contains("must be a whole number"));
  }
  root = ByteTokenizerJson();
  root["added_tokens"] = {AddedTokenJson(300, "ab")};
  REQUIRE_THAT(LoadError(root), Contains("added token 'ab'"));
  root = ByteTokenizerJson();
  root["model"]["merges"] = {"a b", "b q"};
  REQUIRE_THAT(LoadError(root), Contains("'bq'"));
  root["model"]["merges"] = {"a b c"};
  REQUIRE_THAT(LoadError(root), Contains("merge 0"));
}

TEST_CASE("Tokenizer with mistyped fields is refused", "[text]") {
  json root = ByteTokenizerJson();
  root["model"]["vocab"]["ab"] = "x";
  REQUIRE_THAT(LoadError(root), Contains("tokenizer.json"));
  root = ByteTokenizerJson();
  root["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}};
  REQUIRE_THAT(LoadError(root), Contains("does not compile"));
  root["pre_tokenizer"] = {{"type", "Split"}};
  REQUIRE_THAT(LoadError(root), Contains("test.json"));
  REQUIRE_THAT(LoadError(json::array()), Contains("no model"));
}

TEST_CASE("Tokenizer files that are missing or corrupt are named", "[text]") {
  const auto missing = Tokenizer::Load("tests/data/text/nowhere");
  REQUIRE(missing.status().code() == absl::StatusCode::kNotFound);
  REQUIRE_THAT(std::string(missing.status().message()), Contains("nowhere/tokenizer.json"));

  const auto dir = std::filesystem::temp_directory_path() / "tandem_tokenizer_errors_test";
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "tokenizer.json") << "{\"model\": {";
  const auto corrupt = Tokenizer::Load(dir.string());
  std::ofstream(dir / "tokenizer.json") << ByteTokenizerJson().dump();
  std::ofstream(dir / "generation_config.json") << R"({"eos_token_id": "x"})";
  const auto mistyped = Tokenizer::Load(dir.string());
  std::filesystem::remove_all(dir);
  REQUIRE_THAT(std::string(corrupt.status().message()), Contains("is not valid JSON"));
  REQUIRE_THAT(std::string(mistyped.status().message()), Contains("generation_config.json"));
}

}  // namespace tandem::testing
