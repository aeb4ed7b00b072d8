#include "common/text/jinja/value/subscript.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/text/jinja/value/methods.h"
#include "common/text/jinja/value/operators.h"
#include "common/text/jinja/value/print.h"
#include "common/text/unicode/utf8.h"

namespace tandem::jinja {
namespace {

// How messages name the owner of a missing attribute.
std::string Described(const Value& value) {
  return value.is_none() ? "None" : "'" + TypeName(value) + " object'";
}

std::optional<Value> FindAttribute(const Value& value, const std::string& name) {
  // The sandbox hides what starts with two underscores.
  if (name.starts_with("__")) return std::nullopt;
  if (value.is(Kind::kObject)) return value.object().GetAttribute(name);
  return FindMethod(value, name);
}

Value MissingAttribute(const Value& value, const std::string& name) {
  return Value::Undefined(fmt::format("{} has no attribute '{}'", Described(value), name));
}

std::optional<Value> ItemAt(const Value& value, int64_t index) {
  if (value.is_string()) {
    const std::u32string text = ToCodePoints(value.text());
    const int64_t size = static_cast<int64_t>(text.size());
    if (index < 0) index += size;
    if (index < 0 || index >= size) return std::nullopt;
    return Value::String(ToUtf8(text.substr(static_cast<size_t>(index), 1)));
  }
  if (!value.is(Kind::kSequence) || value.sequence().type > Sequence::Type::kRange) {
    return std::nullopt;
  }
  const Values& items = value.sequence().items;
  if (index < 0) index += static_cast<int64_t>(items.size());
  if (index < 0 || index >= static_cast<int64_t>(items.size())) return std::nullopt;
  return items[static_cast<size_t>(index)];
}

// The indices of Python's slice(start, stop, step).indices(size).
absl::StatusOr<std::vector<size_t>> SliceIndices(int64_t size,
                                                 const Value& start,
                                                 const Value& stop,
                                                 const Value& step) {
  for (const Value* part : {&start, &stop, &step}) {
    if (part->is_undefined()) return InvalidArgument("{}", part->undefined_message());
    if (!part->is_none() && !part->is_int() && !part->is(Kind::kBool)) {
      return InvalidArgument("slice indices must be integers or None, not {}", TypeName(*part));
    }
  }
  const auto number = [](const Value& v) { return v.is_int() ? v.integer() : v.boolean(); };
  const int64_t stride = step.is_none() ? 1 : number(step);
  if (stride == 0) return InvalidArgument("slice step cannot be zero");
  const int64_t lowest = stride < 0 ? -1 : 0, highest = stride < 0 ? size - 1 : size;
  const auto clamp = [&](const Value& part, int64_t missing) {
    if (part.is_none()) return missing;
    int64_t index = number(part);
    if (index < 0) index = std::max(index, -size - 1) + size;
    return std::clamp(index, lowest, highest);
  };
  const int64_t from = clamp(start, stride < 0 ? highest : lowest);
  const int64_t to = clamp(stop, stride < 0 ? lowest : highest);
  std::vector<size_t> indices;
  if (stride > 0) {
    for (int64_t i = from; i < to; i += std::min(stride, size + 1)) indices.push_back(i);
  } else {
    for (int64_t i = from; i > to; i += std::max(stride, -size - 1)) indices.push_back(i);
  }
  return indices;
}

}  // namespace

Value GetAttribute(const Value& value, const std::string& name) {
  if (value.is_undefined()) return value;
  if (auto attribute = FindAttribute(value, name)) return *std::move(attribute);
  if (value.is(Kind::kMapping)) {
    if (const Value* item = value.mapping().Find(std::string_view(name))) return *item;
  }
  return MissingAttribute(value, name);
}

absl::StatusOr<Value> GetAttributeOrFail(const Value& value, const std::string& name) {
  if (value.is_undefined()) return InvalidArgument("{}", value.undefined_message());
  return GetAttribute(value, name);
}

absl::StatusOr<Value> GetItem(const Value& value, const Value& key) {
  if (value.is_undefined()) return InvalidArgument("{}", value.undefined_message());
  if (value.is(Kind::kMapping)) {
    if (const Value* item = value.mapping().Find(key)) return *item;
  } else if (key.is_int() || key.is(Kind::kBool)) {
    const int64_t index = key.is_int() ? key.integer() : key.boolean();
    if (auto item = ItemAt(value, index)) return *std::move(item);
  }
  if (!key.is_string()) {
    return Value::Undefined(fmt::format(
        "{} has no element {}", value.is_none() ? "None" : TypeName(value) + " object", Repr(key)));
  }
  if (auto attribute = FindAttribute(value, key.text())) return *std::move(attribute);
  return MissingAttribute(value, key.text());
}

absl::StatusOr<Value> GetSlice(const Value& value,
                               const Value& start,
                               const Value& stop,
                               const Value& step) {
  if (value.is_undefined()) return InvalidArgument("{}", value.undefined_message());
  if (value.is_string()) {
    const std::u32string text = ToCodePoints(value.text());
    TANDEM_ASSIGN_OR_RETURN(const auto indices,
                            SliceIndices(static_cast<int64_t>(text.size()), start, stop, step));
    std::string out;
    for (size_t i : indices) AppendUtf8(text[i], out);
    return Value::String(std::move(out));
  }
  if (!value.is(Kind::kSequence) || value.sequence().type > Sequence::Type::kRange) {
    if (value.is(Kind::kMapping)) return InvalidArgument("unhashable type: 'slice'");
    return InvalidArgument("'{}' object is not subscriptable", TypeName(value));
  }
  const Sequence& sequence = value.sequence();
  TANDEM_ASSIGN_OR_RETURN(
      const auto indices,
      SliceIndices(static_cast<int64_t>(sequence.items.size()), start, stop, step));
  Values items;
  items.reserve(indices.size());
  for (size_t i : indices) items.push_back(sequence.items[i]);
  return Value::Of(sequence.type, std::move(items));
}

absl::StatusOr<Value> GetPath(const Value& value, const Value& path) {
  if (!path.is_string()) return GetItem(value, path);
  Value current = value;
  const std::string& text = path.text();
  for (size_t pos = 0; pos <= text.size();) {
    const size_t dot = std::min(text.find('.', pos), text.size());
    const std::string part = text.substr(pos, dot - pos);
    const bool number = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string::npos;
    const Value key = number ? Value::Int(std::stol(part)) : Value::String(part);
    TANDEM_ASSIGN_OR_RETURN(current, GetItem(current, key));
    pos = dot + 1;
  }
  return current;
}

absl::StatusOr<Value> CallValue(Runtime& runtime, const Value& callee, const Args& args) {
  if (callee.is_undefined()) return InvalidArgument("{}", callee.undefined_message());
  if (!callee.is(Kind::kObject) || !callee.object().is_callable()) {
    return InvalidArgument("'{}' object is not callable", TypeName(callee));
  }
  return callee.object().Call(runtime, args);
}

}  // namespace tandem::jinja
