#include "common/text/jinja/value/methods.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "common/base/status.h"
#include "common/text/jinja/value/allowance.h"
#include "common/text/jinja/value/format.h"
#include "common/text/jinja/value/operators.h"
#include "common/text/jinja/value/python_text.h"
#include "common/text/jinja/value/value.h"
#include "common/text/unicode/properties.h"
#include "common/text/unicode/utf8.h"

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

// The methods of str that templates use.

namespace {

using Result = absl::StatusOr<Value>;
using Text = const std::string&;

Value ListOf(std::vector<std::string> parts) {
  Values items;
  for (std::string& part : parts) items.push_back(Value::String(std::move(part)));
  return Value::List(std::move(items));
}

template <std::string (*kMap)(std::string_view)>
Result Mapped(Text self, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("method", args, {}).status());
  return Value::String(kMap(self));
}

template <Side kSide>
Result StripMethod(Text self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("strip", args, {"chars"}));
  std::optional<std::string> characters;
  if (bound[0] != nullptr && !bound[0]->is_none()) {
    TANDEM_ASSIGN_OR_RETURN(characters, bound.Text(0, ""));
  }
  return Value::String(Strip(self, kSide, characters));
}

template <bool kFromRight>
Result SplitMethod(Text self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("split", args, {"sep", "maxsplit"}));
  TANDEM_ASSIGN_OR_RETURN(const int64_t limit, bound.Int(1, -1));
  if (bound[0] == nullptr || bound[0]->is_none()) {
    return ListOf(kFromRight ? SplitFromRight(self, limit) : Split(self, limit));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string separator, bound.Text(0, ""));
  if (separator.empty()) return InvalidArgument("empty separator");
  return ListOf(kFromRight ? SplitFromRight(self, separator, limit)
                           : Split(self, separator, limit));
}

Result SplitLinesMethod(Text self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("splitlines", args, {"keepends"}));
  return ListOf(SplitLines(self, bound.Flag(0, false)));
}

Result ReplaceMethod(Text self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("replace", args, {"old", "new", "count"}, 2));
  TANDEM_ASSIGN_OR_RETURN(const std::string from, bound.Text(0, ""));
  TANDEM_ASSIGN_OR_RETURN(const std::string to, bound.Text(1, ""));
  TANDEM_ASSIGN_OR_RETURN(const int64_t limit, bound.Int(2, -1));
  return Value::String(Replace(self, from, to, limit));
}

template <bool kAtEnd>
Result AffixMethod(Text self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("startswith", args, {"prefix"}, 1));
  const Values candidates = bound[0]->is_tuple() ? bound[0]->sequence().items : Values{*bound[0]};
  for (const Value& candidate : candidates) {
    if (!candidate.is_string()) {
      return InvalidArgument("startswith and endswith want str or a tuple of str, not {}",
                             TypeName(candidate));
    }
    if (kAtEnd ? self.ends_with(candidate.text()) : self.starts_with(candidate.text())) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

// Where the character at `index`, or the end of the text, begins.
size_t ByteOf(Text text, int64_t index) {
  size_t at = 0;
  for (int64_t i = 0; i < index; ++i) NextCodePoint(text, at);
  return at;
}

template <bool kFromRight, bool kMustFind>
Result FindMethodOf(Text self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("find", args, {"sub", "start"}, 1));
  TANDEM_ASSIGN_OR_RETURN(const std::string part, bound.Text(0, ""));
  TANDEM_ASSIGN_OR_RETURN(int64_t start, bound.Int(1, 0));
  const auto size = static_cast<int64_t>(CountCodePoints(self));
  if (start < 0) start = std::max<int64_t>(0, start + size);
  if (start <= size) {
    const size_t first = ByteOf(self, start);
    const size_t hit = kFromRight ? FindLastText(self, part) : FindText(self, part, first);
    if (hit != std::string::npos && hit >= first) {
      return Value::Int(static_cast<int64_t>(CountCodePoints(self.substr(0, hit))));
    }
  }
  if (kMustFind) return InvalidArgument("substring not found");
  return Value::Int(-1);
}

Result CountMethod(Text self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("count", args, {"sub"}, 1));
  TANDEM_ASSIGN_OR_RETURN(const std::string part, bound.Text(0, ""));
  return Value::Int(Count(self, part));
}

Result JoinMethod(Text self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("join", args, {"iterable"}, 1));
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(*bound[0]));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      return InvalidArgument("sequence item {}: expected str instance, {} found", i,
                             TypeName(items[i]));
    }
    if (!MayGrow(out, self.size() + items[i].text().size())) break;
    if (i > 0) out += self;
    out += items[i].text();
  }
  return Value::String(std::move(out));
}

template <bool kFromRight>
Result PartitionMethod(Text self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("partition", args, {"sep"}, 1));
  TANDEM_ASSIGN_OR_RETURN(const std::string separator, bound.Text(0, ""));
  if (separator.empty()) return InvalidArgument("empty separator");
  const size_t hit = kFromRight ? FindLastText(self, separator) : FindText(self, separator);
  Values parts = {Value::String(self), Value::String(""), Value::String("")};
  if (hit != std::string::npos) {
    parts = {Value::String(self.substr(0, hit)), Value::String(separator),
             Value::String(self.substr(hit + separator.size()))};
  } else if (kFromRight) {
    std::swap(parts[0], parts[2]);
  }
  return Value::Tuple(std::move(parts));
}

template <bool kSuffix>
Result RemoveAffixMethod(Text self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("removeprefix", args, {"prefix"}, 1));
  TANDEM_ASSIGN_OR_RETURN(const std::string affix, bound.Text(0, ""));
  if (kSuffix && self.ends_with(affix)) {
    return Value::String(self.substr(0, self.size() - affix.size()));
  }
  if (!kSuffix && self.starts_with(affix)) return Value::String(self.substr(affix.size()));
  return Value::String(self);
}

template <Side kTextSide>
Result JustifyMethod(Text self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("ljust", args, {"width", "fillchar"}, 1));
  TANDEM_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 0));
  TANDEM_ASSIGN_OR_RETURN(const std::string fill, bound.Text(1, " "));
  if (CountCodePoints(fill) != 1) {
    return InvalidArgument("The fill character must be exactly one character long");
  }
  return Value::String(Justify(self, width, fill, kTextSide));
}

Result ZeroFillMethod(Text self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("zfill", args, {"width"}, 1));
  TANDEM_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 0));
  const bool sign = !self.empty() && (self[0] == '+' || self[0] == '-');
  const std::string digits =
      Justify(self.substr(sign), std::max<int64_t>(width, 1) - sign, "0", Side::kRight);
  return Value::String(self.substr(0, sign) + digits);
}

Result FormatMethod(Text self, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(std::string text, FormatBraces(self, args));
  return Value::String(std::move(text));
}

bool IsAlphanumeric(char32_t c) { return IsLetter(c) || IsNumber(c); }
bool AllSpaces(char32_t c) { return IsPythonSpace(c); }
bool AllAscii(char32_t c) { return c < 0x80; }

// isspace and the like: non-empty, and true for all characters.
template <bool (*kPredicate)(char32_t)>
Result AllOf(Text self, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("method", args, {}).status());
  bool all = !self.empty();
  for (size_t pos = 0; pos < self.size();) all = kPredicate(NextCodePoint(self, pos)) && all;
  return Value::Bool(all);
}

template <bool (*kPredicate)(std::string_view)>
Result CaseTest(Text self, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("method", args, {}).status());
  return Value::Bool(kPredicate(self));
}

}  // namespace

StringMethod FindStringMethod(const std::string& name) {
  static const std::unordered_map<std::string, StringMethod> kMethods = {
      {"capitalize", Mapped<Capitalize>},
      {"casefold", Mapped<CaseFold>},
      {"center", JustifyMethod<Side::kBoth>},
      {"count", CountMethod},
      {"endswith", AffixMethod<true>},
      {"find", FindMethodOf<false, false>},
      {"format", FormatMethod},
      {"index", FindMethodOf<false, true>},
      {"isalnum", AllOf<IsAlphanumeric>},
      {"isalpha", AllOf<IsLetter>},
      {"isascii", AllOf<AllAscii>},
      {"isdecimal", AllOf<IsDecimal>},
      {"isdigit", AllOf<IsDecimal>},
      {"islower", CaseTest<HasOnlyLowerCase>},
      {"isnumeric", AllOf<IsNumber>},
      {"isspace", AllOf<AllSpaces>},
      {"isupper", CaseTest<HasOnlyUpperCase>},
      {"join", JoinMethod},
      {"ljust", JustifyMethod<Side::kLeft>},
      {"lower", Mapped<ToLower>},
      {"lstrip", StripMethod<Side::kLeft>},
      {"partition", PartitionMethod<false>},
      {"removeprefix", RemoveAffixMethod<false>},
      {"removesuffix", RemoveAffixMethod<true>},
      {"replace", ReplaceMethod},
      {"rfind", FindMethodOf<true, false>},
      {"rindex", FindMethodOf<true, true>},
      {"rjust", JustifyMethod<Side::kRight>},
      {"rpartition", PartitionMethod<true>},
      {"rsplit", SplitMethod<true>},
      {"rstrip", StripMethod<Side::kRight>},
      {"split", SplitMethod<false>},
      {"splitlines", SplitLinesMethod},
      {"startswith", AffixMethod<false>},
      {"strip", StripMethod<Side::kBoth>},
      {"swapcase", Mapped<SwapCase>},
      {"title", Mapped<ToTitle>},
      {"upper", Mapped<ToUpper>},
      {"zfill", ZeroFillMethod}};
  const auto it = kMethods.find(name);
  return it == kMethods.end() ? nullptr : it->second;
}

}  // namespace tandem::jinja
