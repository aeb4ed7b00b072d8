// sort, dictsort, groupby, unique, min, max.
#include <algorithm>

#include "common/base/status_macros.h"
#include "common/text/jinja/registry.h"
#include "common/text/jinja/value/arguments.h"
#include "common/text/jinja/value/compare.h"
#include "common/text/jinja/value/print.h"
#include "common/text/jinja/value/subscript.h"
#include "common/text/unicode/properties.h"

namespace tandem::jinja {
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
Result GroupBy(Runtime&, const Value& input, const Args& args) {
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
