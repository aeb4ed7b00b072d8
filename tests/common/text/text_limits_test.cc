// What a hostile tokenizer.json or pattern may cost.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/text/tokenizer.h"
#include "common/text/unicode/regex.h"
#include "tests/common/text/tokenizer_json_builder.h"

namespace tandem::testing {
namespace {

using Catch::Matchers::Contains;
using nlohmann::json;

}  // namespace

TEST_CASE("A pattern that tries too many ways ends with an error that says so", "[text]") {
  const auto regex = Regex::Compile("(a+)+$");
  REQUIRE(regex.ok());
  const auto found = regex->FindAll(std::string(40, 'a') + "b");
  REQUIRE(found.status().code() == absl::StatusCode::kResourceExhausted);
  REQUIRE_THAT(std::string(found.status().message()), Contains("use another one"));
}

TEST_CASE("Patterns that are too long or no UTF-8 are refused", "[text]") {
  REQUIRE_THAT(std::string(Regex::Compile(std::string(70'000, 'a')).status().message()),
               Contains("too long"));
  REQUIRE_THAT(std::string(Regex::CompilePython("a\xC0").status().message()),
               Contains("not valid UTF-8"));
}

TEST_CASE("An id far beyond the number of tokens is refused before memory is asked for", "[text]") {
  json root = ByteTokenizerJson();
  root["model"]["vocab"]["far"] = 16'000'000;
  REQUIRE_THAT(LoadError(root), Contains("'far' has the impossible id 16000000"));
}

TEST_CASE("A normalizer whose steps double the text each is ended", "[text]") {
  json root = ByteTokenizerJson();
  json steps = json::array();
  for (int i = 0; i < 30; ++i) {
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  }
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  const auto tokenizer = Tokenizer::FromJson(root.dump(), "test.json");
  REQUIRE(tokenizer.ok());
  const auto ids = (*tokenizer)->Encode("a", false);
  REQUIRE(ids.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE_THAT(std::string(ids.status().message()), Contains("normalizer"));
}

TEST_CASE("A tokenizer.json nested without end is refused", "[text]") {
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  const auto loaded = Tokenizer::FromJson("{\"model\": " + deep + "}", "test.json");
  REQUIRE_THAT(std::string(loaded.status().message()),
               Contains("test.json: the JSON nests") && Contains("200 levels"));
}

}  // namespace tandem::testing
