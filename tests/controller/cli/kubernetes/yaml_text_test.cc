#include "controller/cli/kubernetes/yaml_text.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// What a reader of YAML makes of a scalar without quotes.
Json PlainScalar(const std::string& text) {
  const Json number = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!number.is_discarded()) return number;
  for (const char* word :
       {"yes", "no", "on", "off", "y", "n", "Yes", "No", "True", "False", "~", ""})
    if (text == word) return Json();  // never the string
  return text;
}

Json ReadBack(const YAML::Node& node) {
  if (node.IsMap()) {
    Json map = Json::object();
    for (const auto& entry : node) map[entry.first.as<std::string>()] = ReadBack(entry.second);
    return map;
  }
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const YAML::Node& item : node) list.push_back(ReadBack(item));
    return list;
  }
  if (node.IsNull()) return nullptr;
  // yaml-cpp's tag of a scalar that stood in quotes or in a block.
  return node.Tag() == "!" ? Json(node.as<std::string>()) : PlainScalar(node.as<std::string>());
}

void RequireReadsBack(const Json& document) {
  const std::string text = YamlText(document);
  INFO(text);
  REQUIRE(ReadBack(YAML::Load(text)) == document);
}

TEST_CASE("YAML text reads as the document it was made of", "[ctl][kubernetes]") {
  RequireReadsBack({{"plain", "tandem-controller"},
                    {"path", "/etc/tandem"},
                    {"number", 7001},
                    {"truth", true},
                    {"nothing", nullptr},
                    {"list", {"a", 1, {{"b", 2}, {"c", {1, 2}}}}},
                    {"lists", {{1, 2}, {3, 4}}},
                    {"empty list", Json::array()},
                    {"empty map", Json::object()},
                    {"deep", {{"deeper", {{"deepest", "x"}}}}}});
}

TEST_CASE("strings that YAML would take for something else are quoted", "[ctl][kubernetes]") {
  for (const char* text : {"",    "true",         "True", "NO",  "y",  "null", "~",  "2",
                           "1e3", "0.0.0.0:7001", "a: b", "- a", "#a", "a #b", " a", "a ",
                           "*",   "$(hostname)",  "\"",   "\\",  "\t", "@a"}) {
    RequireReadsBack({{"key", text}, {"list", {text}}});
    RequireReadsBack({{text, "a key"}});
  }
}

TEST_CASE("a text of several lines stays as it is", "[ctl][kubernetes]") {
  RequireReadsBack(
      {{"run.yaml", "model:\n  path: /models/x\n\n# a comment\ndata: {a: [1, 2]}\n"}, {"next", 1}});
  for (const char* text :
       {"a\nb", "a\nb\n", "a\n\nb\n", "a\nb\n\n", " a\nb\n", "\na\n", "a\tb\nc\n"})
    RequireReadsBack({{"text", text}, {"map", {{"text", text}}}, {"list", {text, "x"}}});
  REQUIRE(YamlText({{"a", "b: 1\nc: 2\n"}}) == "a: |\n  b: 1\n  c: 2\n");
}

TEST_CASE("lists stand as deep as their key, and keys keep their order", "[ctl][kubernetes]") {
  REQUIRE(YamlText({{"b", {{{"name", "x"}, {"v", {1}}}}}, {"a", 2}}) ==
          "b:\n- name: x\n  v:\n  - 1\na: 2\n");
}

}  // namespace
}  // namespace tandem
