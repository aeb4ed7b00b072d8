#include "common/config/yaml.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <google/protobuf/message.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "common/base/status.h"
#include "common/config/config.h"
#include "common/config/yaml_limits.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// CheckYamlLimits has seen the node: it is no deeper than a call can go.
Json ToJson(const YAML::Node& node) {
  if (node.IsNull()) return nullptr;
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const YAML::Node& entry : node) list.push_back(ToJson(entry));
    return list;
  }
  if (node.IsMap()) {
    Json object = Json::object();
    for (const auto& item : node) {
      object[item.first.IsScalar() ? item.first.Scalar() : ""] = ToJson(item.second);
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
    const bool exists = std::filesystem::exists(path, error);
    return MakeStatus(absl::StatusCode::kNotFound, "config file {} {}{}", path,
                      exists ? "is not a regular file" : "does not exist", exists ? "" : hint);
  }
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char part[4096];
  while (file && text.size() <= kMaxYamlBytes) {
    file.read(part, sizeof(part));
    text.append(part, static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    return MakeStatus(absl::StatusCode::kNotFound, "config file {} cannot be read", path);
  }
  text.resize(std::min(text.size(), kMaxYamlBytes + 1));
  const absl::Status limits = CheckYamlLimits(text);
  if (!limits.ok()) return InvalidArgument("{}:{}", path, std::string(limits.message()));
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& e) {
    return InvalidArgument("{}:{}: this is not YAML: {}", path, e.mark.line + 1, e.msg);
  }
}

absl::StatusOr<YAML::Node> ParseYamlValue(const std::string& text) {
  if (text.empty()) return YAML::Node(text);
  TANDEM_RETURN_IF_ERROR(Annotate(CheckYamlLimits(text), "this is not a YAML value, line"));
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& e) {
    return InvalidArgument("this is not a YAML value: {}", e.msg);
  }
}

std::string YamlToJson(const YAML::Node& node) { return ToJson(node).dump(); }

absl::StatusOr<std::string> WithJsonEntry(const std::string& object,
                                          const std::string& entry,
                                          const YAML::Node& value) {
  Json root = object.empty() ? Json::object() : Json::parse(object, nullptr, false);
  Json* place = &root;
  size_t begin = 0;
  for (size_t dot = entry.find('.'); dot != std::string::npos; dot = entry.find('.', begin)) {
    if (!place->is_object()) break;
    place = &(*place)[entry.substr(begin, dot - begin)];
    if (place->is_null()) *place = Json::object();
    begin = dot + 1;
  }
  if (!place->is_object()) return InvalidArgument("{} is no entry of {}", entry, object);
  if (value.IsNull()) {
    place->erase(entry.substr(begin));
  } else {
    (*place)[entry.substr(begin)] = ToJson(value);
  }
  return root.dump();
}

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void EmitMessage(const Message& message, YAML::Emitter* out);

// Entry `index` of a list, or the value itself for -1.
void EmitValue(const Message& m, const FieldDescriptor* f, int index, YAML::Emitter* out) {
  const Reflection& r = *m.GetReflection();
  const bool list = index >= 0;
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return EmitMessage(list ? r.GetRepeatedMessage(m, f, index) : r.GetMessage(m, f), out);
    case FieldDescriptor::CPPTYPE_BOOL:
      *out << (list ? r.GetRepeatedBool(m, f, index) : r.GetBool(m, f));
      return;
    case FieldDescriptor::CPPTYPE_INT64:
      *out << (list ? r.GetRepeatedInt64(m, f, index) : r.GetInt64(m, f));
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      // fmt prints the shortest text that parses to the same number.
      *out << fmt::format("{}", list ? r.GetRepeatedDouble(m, f, index) : r.GetDouble(m, f));
      return;
    default: {
      const std::string text = list ? r.GetRepeatedString(m, f, index) : r.GetString(m, f);
      *out << YAML::DoubleQuoted << text;
    }
  }
}

// A list as [a, b].
void EmitList(const Message& message, const FieldDescriptor* field, YAML::Emitter* out) {
  *out << YAML::Flow << YAML::BeginSeq;
  const int size = message.GetReflection()->FieldSize(message, field);
  for (int k = 0; k < size; ++k) EmitValue(message, field, k, out);
  *out << YAML::EndSeq;
}

void EmitMessage(const Message& message, YAML::Emitter* out) {
  *out << YAML::BeginMap;
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    *out << YAML::Key << field->name() << YAML::Value;
    if (!field->is_repeated()) {
      EmitValue(message, field, -1, out);
      continue;
    }
    EmitList(message, field, out);
  }
  *out << YAML::EndMap;
}

std::string FieldToYaml(const Message& message, const FieldDescriptor* field) {
  YAML::Emitter out;
  if (field->is_repeated()) {
    EmitList(message, field, &out);
  } else {
    EmitValue(message, field, -1, &out);
  }
  return out.c_str();
}

}  // namespace

std::string ConfigToYaml(const v1::Config& config) {
  YAML::Emitter out;
  EmitMessage(config, &out);
  return std::string(out.c_str()) + "\n";
}

std::string KeyToYaml(const v1::Config& config, const std::string& key) {
  const Message* parent = &config;
  size_t begin = 0;
  for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', begin)) {
    const FieldDescriptor* section =
        parent->GetDescriptor()->FindFieldByName(key.substr(begin, dot - begin));
    parent = &parent->GetReflection()->GetMessage(*parent, section);
    begin = dot + 1;
  }
  return FieldToYaml(*parent, parent->GetDescriptor()->FindFieldByName(key.substr(begin)));
}

namespace {

// Appends the keys of a section that `before`, a mapping, has with another value.
absl::Status AddChanges(const YAML::Node& before,
                        const Message& now,
                        const std::string& section,
                        std::vector<ConfigChange>& changes) {
  const google::protobuf::Descriptor& type = *now.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    const YAML::Node old_value = before[field->name()];
    if (!old_value.IsDefined()) continue;
    const std::string key = section + field->name();
    if (field->message_type() != nullptr && !field->is_repeated()) {
      if (!old_value.IsMap()) continue;
      const Message& inner = now.GetReflection()->GetMessage(now, field);
      TANDEM_RETURN_IF_ERROR(AddChanges(old_value, inner, key + ".", changes));
      continue;
    }
    TANDEM_ASSIGN_OR_RETURN(const YAML::Node new_value, ParseYamlValue(FieldToYaml(now, field)));
    ConfigChange change{.key = key, .before = YamlToJson(old_value), .now = YamlToJson(new_value)};
    if (change.before != change.now) changes.push_back(std::move(change));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ConfigChange>> DiffConfig(const std::string& before,
                                                     const v1::Config& now) {
  TANDEM_ASSIGN_OR_RETURN(const YAML::Node old_root, ParseYamlValue(before));
  std::vector<ConfigChange> changes;
  if (old_root.IsMap()) TANDEM_RETURN_IF_ERROR(AddChanges(old_root, now, "", changes));
  return changes;
}

}  // namespace tandem
