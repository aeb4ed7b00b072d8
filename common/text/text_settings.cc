#include "common/text/text_settings.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "common/base/json_integer.h"
#include "common/base/json_nesting.h"
#include "common/base/status.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// {} when the file does not exist.
absl::StatusOr<Json> ReadOptionalJson(const std::string& path) {
  if (!std::filesystem::exists(path)) return Json::object();
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  TANDEM_RETURN_IF_ERROR(Annotate(CheckJsonNesting(text), path));
  Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) {
    return InvalidArgument("{}: is not a valid JSON object; fetch the file again", path);
  }
  return root;
}

// A token is written as a string or as {"content": ...}.
std::optional<std::string> TokenContent(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value.at("content").is_string()) {
    return value.at("content").get<std::string>();
  }
  return std::nullopt;
}

// A string, or a list of {name, template} of which "default" counts.
std::optional<std::string> TemplateOf(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return std::nullopt;
  for (const Json& item : value) {
    if (item.is_object() && item.value("name", "") == "default") {
      return TemplateOf(item.value("template", Json()));
    }
  }
  return std::nullopt;
}

std::vector<int32_t> EosIds(const Json& root) {
  const auto it = root.find("eos_token_id");
  if (it == root.end() || it->is_null()) return {};
  if (it->is_array()) return IntegersOf<int32_t>(*it);
  return {IntegerOf<int32_t>(*it)};
}

absl::StatusOr<TextSettings> Read(const std::string& dir) {
  TextSettings settings;
  TANDEM_ASSIGN_OR_RETURN(const Json config, ReadOptionalJson(dir + "/tokenizer_config.json"));
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    if (auto content = TokenContent(value)) settings.special_tokens[key] = *content;
  }
  settings.chat_template = TemplateOf(config.value("chat_template", Json()));
  settings.chat_template_file = dir + "/tokenizer_config.json";
  const std::string template_file = dir + "/chat_template.jinja";
  if (std::filesystem::exists(template_file)) {
    TANDEM_ASSIGN_OR_RETURN(settings.chat_template, ReadTextFile(template_file));
    settings.chat_template_file = template_file;
  }
  for (const char* name : {"/generation_config.json", "/config.json"}) {
    TANDEM_ASSIGN_OR_RETURN(const Json root, ReadOptionalJson(dir + name));
    settings.eos_token_ids = EosIds(root);
    if (!settings.eos_token_ids.empty()) break;
  }
  return settings;
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return MakeStatus(
        absl::StatusCode::kNotFound,
        "{}: cannot be read; a model directory needs tokenizer.json next to its weights", path);
  }
  return std::move(text).str();
}

absl::StatusOr<TextSettings> ReadTextSettings(const std::string& model_dir) {
  try {
    return Read(model_dir);
  } catch (const Json::exception& error) {
    return InvalidArgument(
        "{}: tokenizer_config.json or generation_config.json has a value of the "
        "wrong type ({}); fetch the files again",
        model_dir, error.what());
  }
}

}  // namespace tandem
