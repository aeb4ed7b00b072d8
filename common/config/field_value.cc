#include "common/config/field_value.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <regex>
#include <vector>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "common/base/json_nesting.h"
#include "common/base/status.h"
#include "common/config/schema.h"
#include "common/config/yaml.h"

namespace tandem {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// The values that a key takes, in words: "at least 1 and at most 8", "above 0".
std::string RangeText(const v1::KeyInfo& info) {
  std::vector<std::string> bounds;
  if (info.has_min()) bounds.push_back(fmt::format("at least {}", info.min()));
  if (info.has_above()) bounds.push_back(fmt::format("above {}", info.above()));
  if (info.has_max()) bounds.push_back(fmt::format("at most {}", info.max()));
  return fmt::format("{}", fmt::join(bounds, " and "));
}

// `text`: the value as it was written.
absl::Status CheckRange(const v1::KeyInfo& info, double value, const std::string& text) {
  const bool inside = (!info.has_min() || value >= info.min()) &&
                      (!info.has_max() || value <= info.max()) &&
                      (!info.has_above() || value > info.above());
  if (inside) return absl::OkStatus();
  return InvalidArgument("{} is out of range: {}", text, RangeText(info));
}

// For a whole number that no int64_t holds: a key without bounds has those of an int64_t.
absl::Status TooLarge(v1::KeyInfo info, const std::string& text) {
  using Limits = std::numeric_limits<int64_t>;
  if (!info.has_min() && !info.has_above()) info.set_min(static_cast<double>(Limits::min()));
  if (!info.has_max()) info.set_max(static_cast<double>(Limits::max()));
  return InvalidArgument("{} is out of range: {}", text, RangeText(info));
}

absl::StatusOr<int64_t> ReadInt(const KeySpec& spec, const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end == text.data() + text.size();
  if (error == std::errc::result_out_of_range && whole) return TooLarge(spec.info, text);
  if (error != std::errc() || !whole) {
    return InvalidArgument("expects a whole number, not \"{}\"", text);
  }
  TANDEM_RETURN_IF_ERROR(CheckRange(spec.info, static_cast<double>(value), text));
  return value;
}

absl::StatusOr<double> ReadDouble(const KeySpec& spec, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return InvalidArgument(
        "expects a number, not \"{}\": digits, maybe with a point and an exponent, such as 0.5 or "
        "1e-6",
        text);
  }
  TANDEM_RETURN_IF_ERROR(CheckRange(spec.info, value, text));
  return value;
}

absl::StatusOr<bool> ReadBool(const std::string& text) {
  const std::string lower = Lower(text);
  if (lower == "true") return true;
  if (lower == "false") return false;
  return InvalidArgument("expects true or false, not \"{}\"", text);
}

absl::Status CheckJson(const std::string& text) {
  if (text.empty()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(CheckJsonNesting(text));
  if (nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false).is_object()) {
    return absl::OkStatus();
  }
  return InvalidArgument("expects a JSON object such as {{\"a\": 1}}, not {}", text);
}

absl::StatusOr<std::string> ReadString(const KeySpec& spec, std::string text) {
  const v1::KeyInfo& info = spec.info;
  if (!info.choices().empty()) {
    for (const std::string& choice : info.choices()) {
      if (text == choice || Lower(text) == choice) return choice;
    }
    return InvalidArgument("\"{}\" is not one of: {}", text, fmt::join(info.choices(), ", "));
  }
  if (info.has_pattern() && !std::regex_match(text, std::regex(info.pattern()))) {
    return InvalidArgument("\"{}\" does not match {}", text, info.pattern());
  }
  if (info.json()) TANDEM_RETURN_IF_ERROR(CheckJson(text));
  if (info.path() && !text.empty()) {
    text = std::filesystem::absolute(text).lexically_normal().string();
  }
  return text;
}

// Reads `text` and sets the field, or adds to it where it is a list.
absl::Status StoreScalar(const KeySpec& spec, const std::string& text, Message* parent) {
  const Reflection& r = *parent->GetReflection();
  const FieldDescriptor* f = spec.field;
  const bool list = f->is_repeated();
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: {
      TANDEM_ASSIGN_OR_RETURN(const int64_t value, ReadInt(spec, text));
      list ? r.AddInt64(parent, f, value) : r.SetInt64(parent, f, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      TANDEM_ASSIGN_OR_RETURN(const double value, ReadDouble(spec, text));
      list ? r.AddDouble(parent, f, value) : r.SetDouble(parent, f, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      TANDEM_ASSIGN_OR_RETURN(const bool value, ReadBool(text));
      list ? r.AddBool(parent, f, value) : r.SetBool(parent, f, value);
      return absl::OkStatus();
    }
    default: {
      TANDEM_ASSIGN_OR_RETURN(const std::string value, ReadString(spec, text));
      list ? r.AddString(parent, f, value) : r.SetString(parent, f, value);
      return absl::OkStatus();
    }
  }
}

std::string KindOf(const YAML::Node& node) {
  return node.IsMap() ? "a mapping" : node.IsSequence() ? "a list" : "a single value";
}

// One entry of a list of messages, such as {name: length, weight: 0.1}.
absl::Status AddMessage(const KeySpec& spec, const YAML::Node& node, Message* parent) {
  if (!node.IsMap()) return InvalidArgument("every entry is a mapping, not {}", KindOf(node));
  Message* entry = parent->GetReflection()->AddMessage(parent, spec.field);
  for (const auto& item : node) {
    const std::string name = item.first.IsScalar() ? item.first.Scalar() : "";
    const std::string key = spec.key + "[]." + name;
    const KeySpec* inner = FindKey(key);
    if (inner == nullptr) {
      return InvalidArgument("{} is unknown in an entry; {}", name, Suggestion(key));
    }
    TANDEM_RETURN_IF_ERROR(Annotate(SetValue(*inner, item.second, entry), name));
  }
  for (const KeySpec& inner : ConfigSchema()) {
    if (inner.info.required() && inner.key.rfind(spec.key + "[].", 0) == 0 &&
        !entry->GetReflection()->HasField(*entry, inner.field)) {
      return InvalidArgument("an entry lacks {}", inner.field->name());
    }
  }
  return absl::OkStatus();
}

absl::Status StoreEntry(const KeySpec& spec, const YAML::Node& node, Message* parent) {
  if (EntryType(spec) != nullptr) return AddMessage(spec, node, parent);
  if (!node.IsScalar())
    return InvalidArgument("expects a {}, not {}", TypeName(spec), KindOf(node));
  return StoreScalar(spec, node.Scalar(), parent);
}

}  // namespace

absl::Status SetValue(const KeySpec& spec, const YAML::Node& node, Message* parent) {
  parent->GetReflection()->ClearField(parent, spec.field);
  if (node.IsNull()) return absl::OkStatus();
  if (spec.field->is_repeated() && node.IsSequence()) {
    for (const YAML::Node& entry : node) {
      TANDEM_RETURN_IF_ERROR(StoreEntry(spec, entry, parent));
    }
    return absl::OkStatus();
  }
  if (spec.info.json() && node.IsMap()) return StoreScalar(spec, YamlToJson(node), parent);
  return StoreEntry(spec, node, parent);
}

Message* ParentMessage(const std::string& key, v1::Config* config) {
  Message* message = config;
  size_t begin = 0;
  for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', begin)) {
    const FieldDescriptor* field =
        message->GetDescriptor()->FindFieldByName(key.substr(begin, dot - begin));
    message = message->GetReflection()->MutableMessage(message, field);
    begin = dot + 1;
  }
  return message;
}

}  // namespace tandem
