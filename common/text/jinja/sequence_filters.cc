// map, select, reject, selectattr, rejectattr: they give generators.

#include <algorithm>

#include "common/base/status.h"
#include "common/text/jinja/builtins.h"
#include "common/text/jinja/value/allowance.h"
#include "common/text/jinja/value/operators.h"
#include "common/text/jinja/value/print.h"
#include "common/text/jinja/value/subscript.h"
#include "common/text/jinja/value/value.h"
#include "common/text/unicode/properties.h"

namespace tandem::jinja {
namespace {

using Result = absl::StatusOr<Value>;

const Value* FindNamed(const Args& args, std::string_view name) {
  for (const auto& [key, value] : args.named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Args Rest(const Args& args, size_t from) {
  return {
      Values(args.positional.begin() + static_cast<std::ptrdiff_t>(from), args.positional.end()),
      args.named};
}

Result MapAttribute(const Values& items, const Value& attribute, const Value* fallback) {
  Values mapped;
  for (const Value& item : items) {
    TANDEM_ASSIGN_OR_RETURN(Value value, GetPath(item, attribute));
    if (value.is_undefined() && fallback != nullptr && !fallback->is_none()) value = *fallback;
    mapped.push_back(std::move(value));
  }
  return Value::Generator(std::move(mapped));
}

Result Map(Runtime& runtime, const Value& input, const Args& args) {
  if (!Truthy(input)) return Value::Generator({});
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(input));
  if (const Value* attribute = FindNamed(args, "attribute"); attribute && args.positional.empty()) {
    return MapAttribute(items, *attribute, FindNamed(args, "default"));
  }
  if (args.positional.empty()) return InvalidArgument("map requires a filter argument");
  const std::string name = ToText(args.positional[0]);
  const Args rest = Rest(args, 1);
  Values mapped;
  for (const Value& item : items) {
    TANDEM_RETURN_IF_ERROR(runtime.allowance.Step());
    TANDEM_ASSIGN_OR_RETURN(Value value, ApplyFilter(runtime, name, item, rest));
    mapped.push_back(std::move(value));
  }
  return Value::Generator(std::move(mapped));
}

template <bool kByAttribute, bool kKeep>
Result Select(Runtime& runtime, const Value& input, const Args& args) {
  if (!Truthy(input)) return Value::Generator({});
  if (kByAttribute && args.positional.empty()) {
    return InvalidArgument("Missing parameter for attribute name");
  }
  const size_t used = kByAttribute ? 1 : 0;
  const bool has_test = args.positional.size() > used;
  const std::string test = has_test ? ToText(args.positional[used]) : "";
  const Args rest = has_test ? Rest(args, used + 1) : Args{};
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(input));
  Values selected;
  for (const Value& item : items) {
    TANDEM_RETURN_IF_ERROR(runtime.allowance.Step());
    Value subject = item;
    if (kByAttribute) {
      TANDEM_ASSIGN_OR_RETURN(subject, GetPath(item, args.positional[0]));
    }
    bool holds = false;
    if (has_test) {
      TANDEM_ASSIGN_OR_RETURN(holds, ApplyTest(test, subject, rest));
    } else {
      holds = Truthy(subject);
    }
    if (holds == kKeep) selected.push_back(item);
  }
  return Value::Generator(std::move(selected));
}

}  // namespace

const FilterTable& SelectionFilters() {
  static const FilterTable kTable = {{"map", Map},
                                     {"reject", Select<false, false>},
                                     {"rejectattr", Select<true, false>},
                                     {"select", Select<false, true>},
                                     {"selectattr", Select<true, true>}};
  return kTable;
}

// Filters on sequences and mappings, and `default`.

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
    const std::string text = ToText(item);
    if (!MayGrow(out, separator.size() + text.size())) break;
    if (i > 0) out += separator;
    out += text;
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
    const bool fills = bound[1] != nullptr && !bound[1]->is_none();
    if (!MayWork(fills ? static_cast<uint64_t>(size) * sizeof(Value) : sizeof(Value))) break;
    if (fills) batch.resize(static_cast<size_t>(size), *bound[1]);
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
  for (int64_t i = 0; i < slices && MayWork(sizeof(Sequence)); ++i) {
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

// sort, dictsort, groupby, unique, min, max.

namespace {

using Result = absl::StatusOr<Value>;
using Keyed = std::pair<Value, Value>;  // sort key, item

// What an item is compared by: its attribute if named, in lower case unless case counts.
absl::StatusOr<Value> KeyOf(const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = item;
  if (attribute != nullptr && !attribute->is_none()) {
    TANDEM_ASSIGN_OR_RETURN(key, GetPath(item, *attribute));
  }
  if (!case_sensitive && key.is_string()) return Value::String(ToLower(key.text()));
  return key;
}

absl::StatusOr<std::vector<Keyed>> WithKeys(const Value& input,
                                            const Value* attribute,
                                            bool case_sensitive) {
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(input));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    TANDEM_ASSIGN_OR_RETURN(Value key, KeyOf(item, attribute, case_sensitive));
    keyed.emplace_back(std::move(key), item);
  }
  return keyed;
}

// Stable in both directions.
absl::StatusOr<Values> Sorted(std::vector<Keyed> keyed, bool descending) {
  absl::Status error;
  if (descending) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(), [&error](const Keyed& a, const Keyed& b) {
    const absl::StatusOr<bool> less = Less(a.first, b.first);
    if (!less.ok() && error.ok()) error = less.status();
    return less.ok() && *less;
  });
  TANDEM_RETURN_IF_ERROR(error);
  if (descending) std::reverse(keyed.begin(), keyed.end());
  Values items;
  for (Keyed& entry : keyed) items.push_back(std::move(entry.second));
  return items;
}

// attribute="a,b" sorts by several.
absl::StatusOr<std::vector<Keyed>> SortKeys(const Value& input,
                                            const Value* attribute,
                                            bool case_sensitive) {
  if (attribute == nullptr || !attribute->is_string() ||
      attribute->text().find(',') == std::string::npos) {
    return WithKeys(input, attribute, case_sensitive);
  }
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(input));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    Values keys;
    const std::string& names = attribute->text();
    for (size_t pos = 0; pos <= names.size();) {
      const size_t comma = std::min(names.find(',', pos), names.size());
      const Value name = Value::String(names.substr(pos, comma - pos));
      TANDEM_ASSIGN_OR_RETURN(Value key, KeyOf(item, &name, case_sensitive));
      keys.push_back(std::move(key));
      pos = comma + 1;
    }
    keyed.emplace_back(Value::List(std::move(keys)), item);
  }
  return keyed;
}

Result Sort(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound,
                          Bind("sort", args, {"reverse", "case_sensitive", "attribute"}));
  TANDEM_ASSIGN_OR_RETURN(auto keyed, SortKeys(input, bound[2], bound.Flag(1, false)));
  TANDEM_ASSIGN_OR_RETURN(Values items, Sorted(std::move(keyed), bound.Flag(0, false)));
  return Value::List(std::move(items));
}

Result DictSort(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound,
                          Bind("dictsort", args, {"case_sensitive", "by", "reverse"}));
  TANDEM_ASSIGN_OR_RETURN(const std::string by, bound.Text(1, "key"));
  if (by != "key" && by != "value") {
    return InvalidArgument("You can only sort by either \"key\" or \"value\"");
  }
  if (input.is_undefined()) return InvalidArgument("{}", input.undefined_message());
  if (!input.is(Kind::kMapping)) {
    return InvalidArgument("dictsort wants a mapping, not {}", TypeName(input));
  }
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : input.mapping().items) {
    TANDEM_ASSIGN_OR_RETURN(Value sort_key,
                            KeyOf(by == "key" ? key : value, nullptr, bound.Flag(0, false)));
    keyed.emplace_back(std::move(sort_key), Value::Tuple({key, value}));
  }
  TANDEM_ASSIGN_OR_RETURN(Values items, Sorted(std::move(keyed), bound.Flag(2, false)));
  return Value::List(std::move(items));
}

// Items of equal attribute, in the order of that attribute.
Result GroupBy(Runtime& runtime, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound,
                          Bind("groupby", args, {"attribute", "default", "case_sensitive"}, 1));
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(input));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    TANDEM_ASSIGN_OR_RETURN(Value key, GetPath(item, *bound[0]));
    if (key.is_undefined()) key = bound.Or(1, key);
    TANDEM_ASSIGN_OR_RETURN(Value sort_key, KeyOf(key, nullptr, bound.Flag(2, false)));
    Value entry = Value::List({key, item, sort_key});
    keyed.emplace_back(std::move(sort_key), std::move(entry));
  }
  // Once the allowance is spent, lists are made empty.
  TANDEM_RETURN_IF_ERROR(runtime.allowance.status());
  TANDEM_ASSIGN_OR_RETURN(const Values sorted, Sorted(std::move(keyed), false));
  Values groups;
  for (size_t begin = 0; begin < sorted.size();) {
    Values members;
    const Values& first = sorted[begin].sequence().items;
    size_t end = begin;
    for (; end < sorted.size() && Equal(sorted[end].sequence().items[2], first[2]); ++end) {
      members.push_back(sorted[end].sequence().items[1]);
    }
    groups.push_back(
        Value::Of(Sequence::Type::kGroup, {first[0], Value::List(std::move(members))}));
    begin = end;
  }
  return Value::List(std::move(groups));
}

Result Unique(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("unique", args, {"case_sensitive", "attribute"}));
  TANDEM_ASSIGN_OR_RETURN(const auto keyed, WithKeys(input, bound[1], bound.Flag(0, false)));
  Values seen, items;
  for (const auto& [key, item] : keyed) {
    TANDEM_RETURN_IF_ERROR(CheckHashable(key));
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&key = key](const Value& other) { return Equal(key, other); });
    if (known) continue;
    seen.push_back(key);
    items.push_back(item);
  }
  return Value::Generator(std::move(items));
}

// The first of equal extremes, as Python's min and max.
template <bool kLargest>
Result Extreme(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("min", args, {"case_sensitive", "attribute"}));
  TANDEM_ASSIGN_OR_RETURN(const auto keyed, WithKeys(input, bound[1], bound.Flag(0, false)));
  if (keyed.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  const Keyed* best = &keyed[0];
  for (const Keyed& entry : keyed) {
    TANDEM_ASSIGN_OR_RETURN(const bool better, kLargest ? Less(best->first, entry.first)
                                                        : Less(entry.first, best->first));
    if (better) best = &entry;
  }
  return best->second;
}

}  // namespace

const FilterTable& SortingFilters() {
  static const FilterTable kTable = {{"dictsort", DictSort}, {"groupby", GroupBy},
                                     {"max", Extreme<true>}, {"min", Extreme<false>},
                                     {"sort", Sort},         {"unique", Unique}};
  return kTable;
}

}  // namespace tandem::jinja
