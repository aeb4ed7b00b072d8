// Filters on sequences and mappings, and `default`.
#include <algorithm>

#include "common/base/status_macros.h"
#include "common/text/jinja/registry.h"
#include "common/text/jinja/value/arguments.h"
#include "common/text/jinja/value/arithmetic.h"
#include "common/text/jinja/value/compare.h"
#include "common/text/jinja/value/print.h"
#include "common/text/jinja/value/subscript.h"

namespace tandem::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Result Default(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("default", args, {"default_value", "boolean"}));
  const bool replace = input.is_undefined() || (bound.Flag(1, false) && !Truthy(input));
  return replace ? bound.Or(0, Value::String("")) : input;
}

Result LengthFilter(Runtime&, const Value& input, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("length", args, {}).status());
  TANDEM_ASSIGN_OR_RETURN(const int64_t length, Length(input));
  return Value::Int(length);
}

Result List(Runtime&, const Value& input, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("list", args, {}).status());
  TANDEM_ASSIGN_OR_RETURN(Values items, Iterate(input));
  return Value::List(std::move(items));
}

Result First(Runtime&, const Value& input, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("first", args, {}).status());
  const Value empty = Value::Undefined("No first item, sequence was empty.");
  if (input.is(Kind::kIterator)) {
    // Takes one item and leaves the rest.
    Iterator& iterator = input.iterator();
    return iterator.next < iterator.items.size() ? iterator.items[iterator.next++] : empty;
  }
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(input));
  return items.empty() ? empty : items.front();
}

Result Last(Runtime&, const Value& input, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("last", args, {}).status());
  if (input.is(Kind::kIterator)) return InvalidArgument("'generator' object is not reversible");
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(input));
  return items.empty() ? Value::Undefined("No last item, sequence was empty.") : items.back();
}

Result Reverse(Runtime&, const Value& input, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("reverse", args, {}).status());
  if (input.is_string()) {
    return GetSlice(input, Value::None(), Value::None(), Value::Int(-1));
  }
  TANDEM_ASSIGN_OR_RETURN(Values items, Iterate(input));
  std::reverse(items.begin(), items.end());
  return input.is(Kind::kIterator) ? Value::List(std::move(items))
                                   : Value::Generator(std::move(items));
}

Result Join(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("join", args, {"d", "attribute"}));
  const std::string separator = bound[0] != nullptr ? ToText(*bound[0]) : "";
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(input));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (bound[1] != nullptr && !bound[1]->is_none()) {
      TANDEM_ASSIGN_OR_RETURN(item, GetPath(item, *bound[1]));
    }
    if (i > 0) out += separator;
    out += ToText(item);
  }
  return Value::String(std::move(out));
}

Result Sum(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("sum", args, {"attribute", "start"}));
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(input));
  Value total = bound.Or(1, Value::Int(0));
  for (Value item : items) {
    if (bound[0] != nullptr && !bound[0]->is_none()) {
      TANDEM_ASSIGN_OR_RETURN(item, GetPath(item, *bound[0]));
    }
    if (item.is_string()) return InvalidArgument("sum() can't sum strings");
    TANDEM_ASSIGN_OR_RETURN(total, Apply(Operator::kAdd, total, item));
  }
  return total;
}

Result Items(Runtime&, const Value& input, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("items", args, {}).status());
  if (input.is_undefined()) return Value::Generator({});
  if (!input.is(Kind::kMapping)) return InvalidArgument("Can only get item pairs from a mapping.");
  Values pairs;
  for (const auto& [key, value] : input.mapping().items)
    pairs.push_back(Value::Tuple({key, value}));
  return Value::Generator(std::move(pairs));
}

Result Attr(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("attr", args, {"name"}, 1));
  TANDEM_ASSIGN_OR_RETURN(const std::string name, bound.Text(0, ""));
  // Unlike a.b this does not fall back to items.
  if (input.is(Kind::kMapping)) {
    const Value attribute = GetAttribute(Value::Map({}), name);
    if (attribute.is_undefined()) return attribute;
  }
  return GetAttributeOrFail(input, name);
}

Result Batch(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("batch", args, {"linecount", "fill_with"}, 1));
  TANDEM_ASSIGN_OR_RETURN(const int64_t size, bound.Int(0, 1));
  if (size < 1) return InvalidArgument("batch: linecount must be at least 1, not {}", size);
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(input));
  Values batches;
  for (size_t start = 0; start < items.size(); start += static_cast<size_t>(size)) {
    const size_t end = std::min(items.size(), start + static_cast<size_t>(size));
    Values batch(items.begin() + static_cast<std::ptrdiff_t>(start),
                 items.begin() + static_cast<std::ptrdiff_t>(end));
    if (bound[1] != nullptr && !bound[1]->is_none())
      batch.resize(static_cast<size_t>(size), *bound[1]);
    batches.push_back(Value::List(std::move(batch)));
  }
  return Value::Generator(std::move(batches));
}

Result SliceFilter(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("slice", args, {"slices", "fill_with"}, 1));
  TANDEM_ASSIGN_OR_RETURN(const int64_t slices, bound.Int(0, 1));
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(input));
  const int64_t length = static_cast<int64_t>(items.size());
  if (slices < 1) return InvalidArgument("slice: slices must be at least 1, not {}", slices);
  const int64_t per_slice = length / slices, larger = length % slices;
  Values result;
  auto begin = items.begin();
  for (int64_t i = 0; i < slices; ++i) {
    const auto end = begin + per_slice + (i < larger);
    Values part(begin, end);
    if (bound[1] != nullptr && !bound[1]->is_none() && i >= larger) part.push_back(*bound[1]);
    result.push_back(Value::List(std::move(part)));
    begin = end;
  }
  return Value::Generator(std::move(result));
}

}  // namespace

const FilterTable& SequenceFilters() {
  static const FilterTable kTable = {
      {"attr", Attr},           {"batch", Batch},     {"count", LengthFilter},
      {"d", Default},           {"default", Default}, {"first", First},
      {"items", Items},         {"join", Join},       {"last", Last},
      {"length", LengthFilter}, {"list", List},       {"reverse", Reverse},
      {"slice", SliceFilter},   {"sum", Sum}};
  return kTable;
}

}  // namespace tandem::jinja
