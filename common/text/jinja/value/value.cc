#include "common/text/jinja/value/value.h"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/text/jinja/value/allowance.h"
#include "common/text/jinja/value/operators.h"

namespace tandem::jinja {

const Value* Mapping::Find(const Value& key) const {
  if (!MayWork(items.size())) return nullptr;
  for (const auto& [k, v] : items) {
    if (Equal(k, key)) return &v;
  }
  return nullptr;
}

const Value* Mapping::Find(std::string_view key) const {
  if (!MayWork(items.size())) return nullptr;
  for (const auto& [k, v] : items) {
    if (k.is_string() && k.text() == key) return &v;
  }
  return nullptr;
}

void Mapping::Set(const Value& key, Value value) {
  if (!MayWork(items.size())) return;
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

int DepthOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kSequence:
      return value.sequence().depth;
    case Kind::kMapping:
      return value.mapping().depth;
    case Kind::kIterator:
      return value.iterator().depth;
    default:
      return 0;
  }
}

namespace {

int DepthOf(const Values& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, DepthOf(item));
  return depth + 1;
}

int DepthOf(const Mapping& mapping) {
  int depth = 0;
  for (const auto& [key, value] : mapping.items) {
    depth = std::max({depth, DepthOf(key), DepthOf(value)});
  }
  return depth + 1;
}

}  // namespace

Value Value::Of(std::shared_ptr<Object> object) {
  if (Allowance* allowance = CurrentAllowance()) allowance->Keep(object);
  return Value(Data(std::move(object)));
}

Value Value::String(std::string text) {
  if (!MayMakeText(text.size())) text = std::string();
  return Value(Data(std::make_shared<const std::string>(std::move(text))));
}

Value Value::Of(Sequence::Type type, Values items) {
  const int depth = DepthOf(items);
  if (!MayMakeItems(items.size(), depth)) return Value(Data(std::make_shared<const Sequence>()));
  return Value(Data(std::make_shared<const Sequence>(Sequence{type, std::move(items), depth})));
}

Value Value::Map(Mapping mapping) {
  mapping.depth = DepthOf(mapping);
  if (!MayMakeItems(2 * mapping.items.size(), mapping.depth)) mapping = Mapping();
  return Value(Data(std::make_shared<const Mapping>(std::move(mapping))));
}

Value Value::Generator(Values items) {
  const int depth = DepthOf(items);
  if (!MayMakeItems(items.size(), depth)) return Value(Data(std::make_shared<Iterator>()));
  return Value(Data(std::make_shared<Iterator>(Iterator{std::move(items), 0, depth})));
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

bool Bound::Flag(size_t i, bool fallback) const {
  return values_[i] ? Truthy(*values_[i]) : fallback;
}

absl::StatusOr<int64_t> Bound::Int(size_t i, int64_t fallback) const {
  if (!values_[i]) return fallback;
  const Value& value = *values_[i];
  if (value.is_int()) return value.integer();
  if (value.is(Kind::kBool)) return value.boolean();
  if (value.is_undefined()) return InvalidArgument("{}", value.undefined_message());
  return InvalidArgument("'{}' object cannot be interpreted as an integer", TypeName(value));
}

absl::StatusOr<std::string> Bound::Text(size_t i, const std::string& fallback) const {
  if (!values_[i]) return fallback;
  const Value& value = *values_[i];
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return InvalidArgument("{}", value.undefined_message());
  return InvalidArgument("argument must be str, not {}", TypeName(value));
}

absl::StatusOr<Bound> Bind(const std::string& function,
                           const Args& args,
                           const std::vector<std::string>& names,
                           size_t required) {
  if (args.positional.size() > names.size()) {
    return InvalidArgument("{}() takes at most {} arguments ({} given)", function, names.size(),
                           args.positional.size());
  }
  std::vector<std::optional<Value>> values(names.size());
  std::copy(args.positional.begin(), args.positional.end(), values.begin());
  for (const auto& [name, value] : args.named) {
    const size_t index =
        static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (index == names.size()) {
      return InvalidArgument("{}() got an unexpected keyword argument '{}'", function, name);
    }
    if (values[index]) {
      return InvalidArgument("{}() got multiple values for argument '{}'", function, name);
    }
    values[index] = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values[i]) return InvalidArgument("{}() is missing the argument '{}'", function, names[i]);
  }
  return Bound(std::move(values));
}

}  // namespace tandem::jinja
