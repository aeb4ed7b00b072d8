#include "tests/common/text/chat_template_checks.h"

#include <set>
#include <vector>

#include <catch2/catch.hpp>

#include "common/text/chat_template.h"
#include "tests/common/text/tokenizer_checks.h"

namespace tandem::testing {
namespace {

std::optional<std::string> OptionalText(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return std::nullopt;
  return it->get<std::string>();
}

// Options that are not arguments of the rendering; every other one is a variable.
ChatInputs InputsOf(const GoldenCase& c) {
  static const std::set<std::string> kKnown = {"template", "tokenizer", "bos_token", "eos_token",
                                               "add_generation_prompt"};
  ChatInputs inputs;
  inputs.messages = c.inputs.at("messages");
  inputs.tools = c.inputs.value("tools", Json());
  inputs.documents = c.inputs.value("documents", Json());
  inputs.add_generation_prompt = c.options.value("add_generation_prompt", false);
  inputs.bos_token = OptionalText(c.options, "bos_token");
  inputs.eos_token = OptionalText(c.options, "eos_token");
  inputs.kwargs = Json::object();
  for (const auto& [key, value] : c.options.items()) {
    if (!kKnown.contains(key)) inputs.kwargs[key] = value;
  }
  return inputs;
}

void CheckRendering(const GoldenFamily& family, const GoldenCase& c) {
  const std::string source = family.root.at("templates")
                                 .at(c.options.at("template").get<std::string>())
                                 .get<std::string>();
  const auto parsed = ChatTemplate::Parse(source);
  INFO(parsed.status().ToString());
  REQUIRE(parsed.ok());
  const auto text = parsed->Render(InputsOf(c));
  if (c.raises) {
    REQUIRE(!text.ok());
    return;
  }
  INFO(text.status().ToString());
  REQUIRE(text.ok());
  REQUIRE(*text == c.outputs.at("text").get<std::string>());
  const Tokenizer& tokenizer =
      GoldenTokenizer(family, c.options.at("tokenizer").get<std::string>());
  const auto ids = tokenizer.Encode(*text, /*add_special_tokens=*/false);
  REQUIRE(ids.ok());
  REQUIRE(*ids == c.outputs.at("ids").get<std::vector<int32_t>>());
}

}  // namespace

std::map<std::string, GoldenCheck> ChatTemplateChecks() {
  return {{"chat_template", CheckRendering}};
}

}  // namespace tandem::testing
