#include "common/text/jinja/value/methods.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/base/status_macros.h"
#include "common/text/jinja/value/arguments.h"
#include "common/text/jinja/value/compare.h"

namespace tandem::jinja {
namespace {

class NativeFunction : public Object {
 public:
  NativeFunction(std::string name, Function function)
      : name_(std::move(name)), function_(std::move(function)) {}
  std::string TypeName() const override { return "builtin_function_or_method"; }
  bool is_callable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime& runtime, const Args& args) override {
    return function_(runtime, args);
  }
  std::string Print() const override { return "<built-in method " + name_ + ">"; }

 private:
  std::string name_;
  Function function_;
};

using Method = absl::StatusOr<Value> (*)(const Value& self, const Args& args);

absl::StatusOr<Value> MappingGet(const Value& self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("get", args, {"key", "default"}, 1));
  const Value* item = self.mapping().Find(*bound[0]);
  return item != nullptr ? *item : bound.Or(1, Value::None());
}

absl::StatusOr<Value> MappingKeys(const Value& self, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("keys", args, {}).status());
  TANDEM_ASSIGN_OR_RETURN(Values keys, Iterate(self));
  return Value::Of(Sequence::Type::kKeysView, std::move(keys));
}

absl::StatusOr<Value> MappingValues(const Value& self, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("values", args, {}).status());
  Values values;
  for (const auto& [key, value] : self.mapping().items) values.push_back(value);
  return Value::Of(Sequence::Type::kValuesView, std::move(values));
}

absl::StatusOr<Value> MappingItems(const Value& self, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("items", args, {}).status());
  Values items;
  for (const auto& [key, value] : self.mapping().items) items.push_back(Value::Tuple({key, value}));
  return Value::Of(Sequence::Type::kItemsView, std::move(items));
}

absl::StatusOr<Value> Copy(const Value& self, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("copy", args, {}).status());
  return self;
}

absl::StatusOr<Value> SequenceIndex(const Value& self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("index", args, {"value"}, 1));
  const Values& items = self.sequence().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (Equal(items[i], *bound[0])) return Value::Int(static_cast<int64_t>(i));
  }
  return InvalidArgument("the value is not in the list");
}

absl::StatusOr<Value> SequenceCount(const Value& self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("count", args, {"value"}, 1));
  int64_t count = 0;
  for (const Value& item : self.sequence().items) count += Equal(item, *bound[0]);
  return Value::Int(count);
}

absl::StatusOr<Value> FloatIsInteger(const Value& self, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("is_integer", args, {}).status());
  return Value::Bool(std::floor(self.floating()) == self.floating());
}

Value Refused(const std::string& type, const std::string& name) {
  return MakeFunction(name, [type, name](Runtime&, const Args&) -> absl::StatusOr<Value> {
    return InvalidArgument("'{}' of a '{}' object would change it: templates may not", name, type);
  });
}

const std::map<std::string, Method>* MethodsOf(const Value& value) {
  static const std::map<std::string, Method> kMapping = {{"get", MappingGet},
                                                         {"keys", MappingKeys},
                                                         {"values", MappingValues},
                                                         {"items", MappingItems},
                                                         {"copy", Copy}};
  static const std::map<std::string, Method> kList = {
      {"index", SequenceIndex}, {"count", SequenceCount}, {"copy", Copy}};
  static const std::map<std::string, Method> kTuple = {{"index", SequenceIndex},
                                                       {"count", SequenceCount}};
  static const std::map<std::string, Method> kFloat = {{"is_integer", FloatIsInteger}};
  if (value.is(Kind::kMapping)) return &kMapping;
  if (value.is_list()) return &kList;
  if (value.is_tuple()) return &kTuple;
  return value.is(Kind::kFloat) ? &kFloat : nullptr;
}

bool IsMutator(const Value& value, const std::string& name) {
  static const std::vector<std::string> kMapping = {"clear", "pop", "popitem", "setdefault",
                                                    "update"};
  static const std::vector<std::string> kList = {"append", "clear",   "extend", "insert",
                                                 "pop",    "reverse", "remove", "sort"};
  const auto& names = value.is(Kind::kMapping) ? kMapping : kList;
  return (value.is(Kind::kMapping) || value.is_list()) &&
         std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Value MakeFunction(const std::string& name, Function function) {
  return Value::Of(std::make_shared<NativeFunction>(name, std::move(function)));
}

std::optional<Value> FindMethod(const Value& value, const std::string& name) {
  if (value.is_string()) {
    const StringMethod method = FindStringMethod(name);
    if (method == nullptr) return std::nullopt;
    return MakeFunction(
        name, [method, value](Runtime&, const Args& args) { return method(value.text(), args); });
  }
  if (value.is(Kind::kSequence) && value.sequence().type == Sequence::Type::kGroup) {
    if (name == "grouper") return value.sequence().items[0];
    if (name == "list") return value.sequence().items[1];
  }
  const auto* methods = MethodsOf(value);
  if (methods == nullptr) return std::nullopt;
  if (const auto it = methods->find(name); it != methods->end()) {
    return MakeFunction(name, [method = it->second, value](Runtime&, const Args& args) {
      return method(value, args);
    });
  }
  if (IsMutator(value, name)) return Refused(TypeName(value), name);
  return std::nullopt;
}

}  // namespace tandem::jinja
