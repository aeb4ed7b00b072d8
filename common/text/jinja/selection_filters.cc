// map, select, reject, selectattr, rejectattr: they give generators.
#include "common/base/status_macros.h"
#include "common/text/jinja/registry.h"
#include "common/text/jinja/value/compare.h"
#include "common/text/jinja/value/print.h"
#include "common/text/jinja/value/subscript.h"

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
    TANDEM_ASSIGN_OR_RETURN(Value value, ApplyFilter(runtime, name, item, rest));
    mapped.push_back(std::move(value));
  }
  return Value::Generator(std::move(mapped));
}

template <bool kByAttribute, bool kKeep>
Result Select(Runtime&, const Value& input, const Args& args) {
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

}  // namespace tandem::jinja
