// Renderings of published templates against what jinja2 makes of them.
#include <fstream>
#include <iostream>
#include <sstream>

#include <catch2/catch.hpp>

#include "common/text/chat_template.h"
#include "tests/support/golden.h"

namespace tandem::testing {
namespace {

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

ChatInputs PublishedInputs(const Json& c, absl::Time now) {
  ChatInputs inputs;
  inputs.messages = c.at("messages");
  inputs.tools = c.at("tools");
  inputs.add_generation_prompt = c.at("add_generation_prompt").get<bool>();
  if (c.at("bos_token").is_string()) inputs.bos_token = c.at("bos_token").get<std::string>();
  if (c.at("eos_token").is_string()) inputs.eos_token = c.at("eos_token").get<std::string>();
  inputs.kwargs = c.at("kwargs");
  inputs.now = now;
  return inputs;
}

absl::Time ParseNow(const std::string& text) {
  absl::Time now;
  std::string error;
  REQUIRE(absl::ParseTime("%Y-%m-%d%ET%H:%M:%E*S", text, &now, &error));
  return now;
}

}  // namespace

TEST_CASE("ChatTemplate renders published templates as jinja2 does", "[text][golden]") {
  const auto dir = FolderOrSkip("TANDEM_TEMPLATES_DIR", "../shared/data/chat_templates");
  const Json expected = ReadJsonFile(dir / "expected.json");
  const absl::Time now = ParseNow(expected.at("now").get<std::string>());
  size_t count = 0;
  for (const Json& c : expected.at("cases")) {
    INFO("case " << c.at("id").get<std::string>());
    const auto parsed = ChatTemplate::Parse(ReadAll(dir / c.at("template").get<std::string>()));
    INFO(parsed.status().ToString());
    REQUIRE(parsed.ok());
    const auto text = parsed->Render(PublishedInputs(c, now));
    INFO(text.status().ToString());
    REQUIRE(text.ok() == !c.contains("raises"));
    if (text.ok()) REQUIRE(*text == c.at("text").get<std::string>());
    ++count;
  }
  std::cout << "chat templates: " << count << " renderings checked" << std::endl;
  REQUIRE(count > 0);
}

}  // namespace tandem::testing
