#include "common/text/chat_template.h"

#include <catch2/catch.hpp>

namespace tandem::testing {
namespace {

const char kTemplate[] = R"({{ bos_token }}
{%- for m in messages %}
[{{ m.role }}] {{ m.content }}
{%- endfor %}
{%- if tools is not none %} tools:{{ tools | length }}{% endif %}
{%- if style is defined %} style:{{ style }}{% endif %}
{%- if add_generation_prompt %} > {% endif %}
)";

ChatInputs OneTurn() {
  ChatInputs inputs;
  inputs.messages = {{{"role", "user"}, {"content", "hi"}}};
  return inputs;
}

std::string RenderChat(const ChatInputs& inputs) {
  const auto parsed = ChatTemplate::Parse(kTemplate);
  REQUIRE(parsed.ok());
  const auto text = parsed->Render(inputs);
  INFO(text.status().ToString());
  REQUIRE(text.ok());
  return *text;
}

}  // namespace

TEST_CASE("ChatTemplate passes messages, tools and variables on", "[text]") {
  ChatInputs inputs = OneTurn();
  REQUIRE(RenderChat(inputs) == "[user] hi");
  inputs.bos_token = "<s>";
  inputs.add_generation_prompt = true;
  inputs.tools = {{{"name", "add"}}};
  inputs.kwargs = {{"style", "terse"}};
  REQUIRE(RenderChat(inputs) == "<s>[user] hi tools:1 style:terse > ");
}

TEST_CASE("ChatTemplate lets variables override what it passes", "[text]") {
  ChatInputs inputs = OneTurn();
  inputs.bos_token = "<s>";
  inputs.kwargs = {{"bos_token", "<other>"}};
  REQUIRE(RenderChat(inputs) == "<other>[user] hi");
}

TEST_CASE("ChatTemplate reports the template's own refusal", "[text]") {
  const auto parsed = ChatTemplate::Parse("{{ raise_exception('roles must alternate') }}");
  REQUIRE(parsed.ok());
  const auto text = parsed->Render(OneTurn());
  REQUIRE(text.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE_THAT(std::string(text.status().message()),
               Catch::Matchers::Contains("cannot render the conversation") &&
                   Catch::Matchers::Contains("roles must alternate"));
}

TEST_CASE("ChatTemplate refuses what is not a template and no variables", "[text]") {
  REQUIRE(!ChatTemplate::Parse("{% if %}").ok());
  const auto parsed = ChatTemplate::Parse("x");
  ChatInputs inputs = OneTurn();
  inputs.kwargs = "text";
  REQUIRE(!parsed->Render(inputs).ok());
}

}  // namespace tandem::testing
