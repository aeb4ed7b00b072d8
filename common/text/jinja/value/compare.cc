#include "common/text/jinja/value/compare.h"

#include <cmath>

#include "common/base/status_macros.h"
#include "common/text/jinja/value/arithmetic.h"
#include "common/text/unicode/utf8.h"

namespace tandem::jinja {
namespace {

bool EqualItems(const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Equal(a[i], b[i])) return false;
  }
  return true;
}

bool EqualMappings(const Mapping& a, const Mapping& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = b.Find(key);
    if (other == nullptr || !Equal(value, *other)) return false;
  }
  return true;
}

absl::StatusOr<bool> LessItems(const Values& a, const Values& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (!Equal(a[i], b[i])) return Less(a[i], b[i]);
  }
  return a.size() < b.size();
}

Values Characters(const std::string& text) {
  Values items;
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    NextCodePoint(text, pos);
    items.push_back(Value::String(text.substr(start, pos - start)));
  }
  return items;
}

}  // namespace

bool Truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean();
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.floating() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kSequence:
      return !value.sequence().items.empty();
    case Kind::kMapping:
      return !value.mapping().items.empty();
    case Kind::kIterator:
    case Kind::kObject:
      return true;
  }
  return false;
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (IsIntegral(a) && IsIntegral(b)) return AsInt64(a) == AsInt64(b);
    return AsDouble(a) == AsDouble(b);
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kSequence:
      return (a.sequence().type == b.sequence().type || (a.is_tuple() && b.is_tuple())) &&
             EqualItems(a.sequence().items, b.sequence().items);
    case Kind::kMapping:
      return EqualMappings(a.mapping(), b.mapping());
    default:
      return a.IsSame(b);
  }
}

absl::StatusOr<bool> Less(const Value& a, const Value& b) {
  for (const Value* v : {&a, &b}) {
    if (v->is_undefined()) return InvalidArgument("{}", v->undefined_message());
  }
  if (a.is_number() && b.is_number()) {
    if (IsIntegral(a) && IsIntegral(b)) return AsInt64(a) < AsInt64(b);
    return AsDouble(a) < AsDouble(b);
  }
  // UTF-8 bytes have the order of the code points.
  if (a.is_string() && b.is_string()) return a.text() < b.text();
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    return LessItems(a.sequence().items, b.sequence().items);
  }
  return InvalidArgument("'<' not supported between instances of '{}' and '{}'", TypeName(a),
                         TypeName(b));
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (item.is_undefined()) return InvalidArgument("{}", item.undefined_message());
    if (!item.is_string()) {
      return InvalidArgument("'in <string>' requires string as left operand, not {}",
                             TypeName(item));
    }
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is(Kind::kMapping)) {
    TANDEM_RETURN_IF_ERROR(CheckHashable(item));
    return container.mapping().Find(item) != nullptr;
  }
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(container));
  for (const Value& candidate : items) {
    if (Equal(candidate, item)) return true;
  }
  return false;
}

absl::Status CheckHashable(const Value& value) {
  if (value.is(Kind::kMapping) || value.is_list()) {
    return InvalidArgument("unhashable type: '{}'", TypeName(value));
  }
  if (value.is_tuple()) {
    for (const Value& item : value.sequence().items) TANDEM_RETURN_IF_ERROR(CheckHashable(item));
  }
  return absl::OkStatus();
}

absl::StatusOr<Values> Iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return Values();
    case Kind::kString:
      return Characters(value.text());
    case Kind::kSequence:
      return value.sequence().items;
    case Kind::kMapping: {
      Values keys;
      for (const auto& [key, unused] : value.mapping().items) keys.push_back(key);
      return keys;
    }
    case Kind::kIterator: {
      Iterator& it = value.iterator();
      Values rest(it.items.begin() + static_cast<std::ptrdiff_t>(it.next), it.items.end());
      it.next = it.items.size();
      return rest;
    }
    default:
      return InvalidArgument("'{}' object is not iterable", TypeName(value));
  }
}

absl::StatusOr<int64_t> Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(CountCodePoints(value.text()));
    case Kind::kSequence:
      return static_cast<int64_t>(value.sequence().items.size());
    case Kind::kMapping:
      return static_cast<int64_t>(value.mapping().items.size());
    case Kind::kObject:
      if (const auto length = value.object().GetAttribute("length"); length && length->is_int()) {
        return length->integer();
      }
      [[fallthrough]];
    default:
      return InvalidArgument("object of type '{}' has no len()", TypeName(value));
  }
}

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kMapping:
      return "dict";
    case Kind::kIterator:
      return "generator";
    case Kind::kObject:
      return value.object().TypeName();
    case Kind::kSequence:
      break;
  }
  static constexpr const char* kNames[] = {"list",      "tuple",       "tuple",     "range",
                                           "dict_keys", "dict_values", "dict_items"};
  return kNames[static_cast<int>(value.sequence().type)];
}

double AsDouble(const Value& value) {
  if (value.is(Kind::kBool)) return value.boolean() ? 1.0 : 0.0;
  if (value.is_int()) return static_cast<double>(value.integer());
  return value.floating();
}

}  // namespace tandem::jinja
