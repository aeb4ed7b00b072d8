#include "common/config/yaml_file.h"

#include <filesystem>

#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// Arguments nested deeper than this are cut off rather than recursed into.
constexpr int kMaxDepth = 64;

Json ToJson(const YAML::Node& node, int depth) {
  if (depth > kMaxDepth || node.IsNull()) return nullptr;
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const YAML::Node& entry : node) list.push_back(ToJson(entry, depth + 1));
    return list;
  }
  if (node.IsMap()) {
    Json object = Json::object();
    for (const auto& item : node) {
      object[item.first.IsScalar() ? item.first.Scalar() : ""] = ToJson(item.second, depth + 1);
    }
    return object;
  }
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  if (text == "True") return true;
  if (text == "False") return false;
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_primitive() && !value.is_discarded() ? value : Json(text);
}

}  // namespace

absl::StatusOr<YAML::Node> ReadYamlFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return MakeStatus(absl::StatusCode::kNotFound,
                      "config file {} is a directory; name the YAML file in it", path);
  }
  if (!std::filesystem::is_regular_file(path, error)) {
    std::string hint;
    if (std::filesystem::path(path).is_relative()) {
      hint = "; a relative path starts at the current directory, " +
             std::filesystem::current_path(error).string();
    }
    return MakeStatus(absl::StatusCode::kNotFound, "config file {} does not exist{}", path, hint);
  }
  try {
    return YAML::LoadFile(path);
  } catch (const YAML::BadFile&) {
    return MakeStatus(absl::StatusCode::kNotFound, "config file {} cannot be read", path);
  } catch (const YAML::Exception& e) {
    return InvalidArgument("{}:{}: this is no YAML: {}", path, e.mark.line + 1, e.msg);
  }
}

absl::StatusOr<YAML::Node> ParseYamlValue(const std::string& text) {
  if (text.empty()) return YAML::Node(text);
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& e) {
    return InvalidArgument("this is no YAML value: {}", e.msg);
  }
}

std::string YamlToJson(const YAML::Node& node) { return ToJson(node, 0).dump(); }

}  // namespace tandem
