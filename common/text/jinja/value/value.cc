#include "common/text/jinja/value/value.h"

#include <limits>

#include <nlohmann/json.hpp>

#include "common/base/status_macros.h"
#include "common/text/jinja/value/compare.h"

namespace tandem::jinja {

const Value* Mapping::Find(const Value& key) const {
  for (const auto& [k, v] : items) {
    if (Equal(k, key)) return &v;
  }
  return nullptr;
}

const Value* Mapping::Find(std::string_view key) const {
  for (const auto& [k, v] : items) {
    if (k.is_string() && k.text() == key) return &v;
  }
  return nullptr;
}

void Mapping::Set(const Value& key, Value value) {
  for (auto& [k, v] : items) {
    if (Equal(k, key)) {
      v = std::move(value);
      return;
    }
  }
  items.emplace_back(key, std::move(value));
}

Value Value::Undefined(std::string message) {
  return Value(Data(std::make_shared<const UndefinedValue>(UndefinedValue{std::move(message)})));
}

Value Value::String(std::string text) {
  return Value(Data(std::make_shared<const std::string>(std::move(text))));
}

Value Value::Of(Sequence::Type type, Values items) {
  return Value(Data(std::make_shared<const Sequence>(Sequence{type, std::move(items)})));
}

Value Value::Map(Mapping mapping) {
  return Value(Data(std::make_shared<const Mapping>(std::move(mapping))));
}

Value Value::Generator(Values items) {
  return Value(Data(std::make_shared<Iterator>(Iterator{std::move(items), 0})));
}

absl::StatusOr<Value> Value::FromJson(const nlohmann::ordered_json& json, int depth) {
  if (depth > 200) return InvalidArgument("JSON is nested more than 200 levels deep");
  switch (json.type()) {
    case nlohmann::json::value_t::boolean:
      return Bool(json.get<bool>());
    case nlohmann::json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return InvalidArgument("the integer {} does not fit 64 bits", json.get<uint64_t>());
      }
      return Int(json.get<int64_t>());
    case nlohmann::json::value_t::number_integer:
      return Int(json.get<int64_t>());
    case nlohmann::json::value_t::number_float:
      return Float(json.get<double>());
    case nlohmann::json::value_t::string:
      return String(json.get<std::string>());
    case nlohmann::json::value_t::array: {
      Values items;
      items.reserve(json.size());
      for (const auto& item : json) {
        TANDEM_ASSIGN_OR_RETURN(Value value, FromJson(item, depth + 1));
        items.push_back(std::move(value));
      }
      return List(std::move(items));
    }
    case nlohmann::json::value_t::object: {
      Mapping mapping;
      for (const auto& [key, item] : json.items()) {
        TANDEM_ASSIGN_OR_RETURN(Value value, FromJson(item, depth + 1));
        mapping.items.emplace_back(String(key), std::move(value));
      }
      return Map(std::move(mapping));
    }
    default:
      return None();
  }
}

absl::Status Object::SetAttribute(const std::string& name, Value) {
  return InvalidArgument("cannot assign attribute '{}' on non-namespace object", name);
}

absl::StatusOr<Value> Object::Call(Runtime&, const Args&) {
  return InvalidArgument("'{}' object is not callable", TypeName());
}

}  // namespace tandem::jinja
