#include "common/text/jinja/builtins.h"

#include <ctime>
#include <map>

#include "common/base/status.h"
#include "common/text/jinja/value/allowance.h"
#include "common/text/jinja/value/methods.h"
#include "common/text/jinja/value/operators.h"
#include "common/text/jinja/value/print.h"
#include "common/text/jinja/value/value.h"
#include "common/text/unicode/properties.h"

namespace tandem::jinja {
namespace {

FilterFunction FindFilter(const std::string& name) {
  static const auto* const kAll = [] {
    auto* all = new FilterTable;
    for (const auto* table : {&TextFilters(), &NumberFilters(), &SequenceFilters(),
                              &SelectionFilters(), &SortingFilters()}) {
      all->insert(table->begin(), table->end());
    }
    return all;
  }();
  const auto it = kAll->find(name);
  return it == kAll->end() ? nullptr : it->second;
}

}  // namespace

bool HasFilter(const std::string& name) { return FindFilter(name) != nullptr; }

absl::StatusOr<Value> ApplyFilter(Runtime& runtime,
                                  const std::string& name,
                                  const Value& input,
                                  const Args& args) {
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr) return InvalidArgument("No filter named '{}' is supported", name);
  return filter(runtime, input, args);
}

// The functions that every template can call.

namespace {

using Result = absl::StatusOr<Value>;

constexpr int64_t kMaxRange = 100000;  // the sandbox's limit

// dict(mapping_or_pairs, key=value, ...)
absl::StatusOr<Mapping> MakeMapping(const Args& args) {
  Mapping mapping;
  if (args.positional.size() > 1) {
    return InvalidArgument("dict expected at most 1 argument, got {}", args.positional.size());
  }
  for (const Value& source : args.positional) {
    if (source.is(Kind::kMapping)) {
      mapping = source.mapping();
      continue;
    }
    TANDEM_ASSIGN_OR_RETURN(const Values pairs, Iterate(source));
    for (const Value& pair : pairs) {
      TANDEM_ASSIGN_OR_RETURN(const Values both, Iterate(pair));
      if (both.size() != 2) return InvalidArgument("dict() wants pairs");
      mapping.Set(both[0], both[1]);
    }
  }
  for (const auto& [name, value] : args.named) mapping.Set(Value::String(name), value);
  return mapping;
}

// {% set ns.name = value %} works on these, and is seen outside the block.
class Namespace : public Object {
 public:
  explicit Namespace(Mapping attributes) : attributes_(std::move(attributes)) {}
  std::string TypeName() const override { return "Namespace"; }
  std::string Print() const override { return "<Namespace " + Repr(Value::Map(attributes_)) + ">"; }
  void LetGo() override { attributes_ = Mapping(); }
  std::optional<Value> GetAttribute(const std::string& name) override {
    const Value* value = attributes_.Find(std::string_view(name));
    return value == nullptr ? std::nullopt : std::optional(*value);
  }
  absl::Status SetAttribute(const std::string& name, Value value) override {
    attributes_.Set(Value::String(name), std::move(value));
    return absl::OkStatus();
  }

 private:
  Mapping attributes_;
};

class Cycler : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(Values items) : items_(std::move(items)) {}
  std::string TypeName() const override { return "Cycler"; }
  std::optional<Value> GetAttribute(const std::string& name) override {
    if (name == "current") return items_[next_];
    if (name != "next" && name != "reset") return std::nullopt;
    const bool reset = name == "reset";
    return MakeFunction(name, [self = shared_from_this(), reset](Runtime&, const Args&) -> Result {
      const Value current = self->items_[self->next_];
      self->next_ = reset ? 0 : (self->next_ + 1) % self->items_.size();
      return reset ? Value::None() : current;
    });
  }

 private:
  const Values items_;
  size_t next_ = 0;
};

class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string TypeName() const override { return "Joiner"; }
  bool is_callable() const override { return true; }
  Result Call(Runtime&, const Args&) override {
    const bool first = !used_;
    used_ = true;
    return first ? Value::String("") : separator_;
  }

 private:
  const Value separator_;
  bool used_ = false;
};

Result Range(Runtime&, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("range", args, {"start", "stop", "step"}, 1));
  TANDEM_ASSIGN_OR_RETURN(int64_t start, bound.Int(0, 0));
  TANDEM_ASSIGN_OR_RETURN(int64_t stop, bound.Int(1, 0));
  TANDEM_ASSIGN_OR_RETURN(const int64_t step, bound.Int(2, 1));
  if (bound[1] == nullptr) stop = std::exchange(start, 0);
  if (step == 0) return InvalidArgument("range() arg 3 must not be zero");
  const double count =
      (static_cast<double>(stop) - static_cast<double>(start)) / static_cast<double>(step);
  if (count > static_cast<double>(kMaxRange)) {
    return InvalidArgument("Range too big. The sandbox blocks ranges larger than {}", kMaxRange);
  }
  Values items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    items.push_back(Value::Int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::Of(Sequence::Type::kRange, std::move(items));
}

Result Dict(Runtime&, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(Mapping mapping, MakeMapping(args));
  return Value::Map(std::move(mapping));
}

Result MakeNamespace(Runtime&, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(Mapping mapping, MakeMapping(args));
  return Value::Of(std::make_shared<Namespace>(std::move(mapping)));
}

Result MakeCycler(Runtime&, const Args& args) {
  if (args.positional.empty()) return InvalidArgument("at least one item has to be provided");
  return Value::Of(std::make_shared<Cycler>(args.positional));
}

Result MakeJoiner(Runtime&, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("joiner", args, {"sep"}));
  return Value::Of(std::make_shared<Joiner>(bound.Or(0, Value::String(", "))));
}

Result RaiseException(Runtime&, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("raise_exception", args, {"message"}, 1));
  return InvalidArgument("{}", ToText(*bound[0]));
}

Result StrftimeNow(Runtime& runtime, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("strftime_now", args, {"format"}, 1));
  TANDEM_ASSIGN_OR_RETURN(const std::string format, bound.Text(0, ""));
  if (format.empty()) return Value::String("");
  const std::tm time = absl::ToTM(runtime.now, runtime.zone);
  std::string text(format.size() * 16 + 64, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &time));
  return Value::String(std::move(text));
}

}  // namespace

void AddGlobals(Scope& scope) {
  static const std::pair<const char*, Result (*)(Runtime&, const Args&)> kGlobals[] = {
      {"range", Range},
      {"dict", Dict},
      {"namespace", MakeNamespace},
      {"cycler", MakeCycler},
      {"joiner", MakeJoiner},
      {"raise_exception", RaiseException},
      {"strftime_now", StrftimeNow}};
  for (const auto& [name, function] : kGlobals) scope.Set(name, MakeFunction(name, function));
}

// The tests, which follow `is`.

namespace {

using TestResult = absl::StatusOr<bool>;

template <bool (*kPredicate)(const Value&)>
TestResult Simple(const Value& value, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("test", args, {}).status());
  return kPredicate(value);
}

bool Defined(const Value& v) { return !v.is_undefined(); }
bool Undefined(const Value& v) { return v.is_undefined(); }
bool IsNone(const Value& v) { return v.is_none(); }
bool Boolean(const Value& v) { return v.is(Kind::kBool); }
bool True(const Value& v) { return v.is(Kind::kBool) && v.boolean(); }
bool False(const Value& v) { return v.is(Kind::kBool) && !v.boolean(); }
bool Integer(const Value& v) { return v.is_int(); }
bool IsFloat(const Value& v) { return v.is(Kind::kFloat); }
bool Number(const Value& v) { return v.is_number(); }
bool IsText(const Value& v) { return v.is_string(); }
bool IsMapping(const Value& v) { return v.is(Kind::kMapping); }
bool Callable(const Value& v) {
  // An undefined value has a __call__ that raises, so Python takes it for a callable.
  return v.is_undefined() || (v.is(Kind::kObject) && v.object().is_callable());
}
bool Iterable(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is(Kind::kSequence) || v.is(Kind::kMapping) ||
         v.is(Kind::kIterator);
}
bool IsSequence(const Value& v) {
  const bool view = v.is(Kind::kSequence) && v.sequence().type > Sequence::Type::kRange;
  return Iterable(v) && !v.is(Kind::kIterator) && !view;
}
bool Escaped(const Value&) { return false; }
bool LowerCased(const Value& v) { return HasOnlyLowerCase(ToText(v)); }
bool UpperCased(const Value& v) { return HasOnlyUpperCase(ToText(v)); }
bool IsFilterName(const Value& v) { return v.is_string() && HasFilter(v.text()); }
bool IsTestName(const Value& v) { return v.is_string() && HasTest(v.text()); }

TestResult DivisibleBy(const Value& value, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("divisibleby", args, {"num"}, 1));
  TANDEM_ASSIGN_OR_RETURN(const Value rest, Apply(Operator::kModulo, value, *bound[0]));
  return Equal(rest, Value::Int(0));
}

template <int kRest>
TestResult Parity(const Value& value, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("test", args, {}).status());
  TANDEM_ASSIGN_OR_RETURN(const Value rest, Apply(Operator::kModulo, value, Value::Int(2)));
  return Equal(rest, Value::Int(kRest));
}

TestResult SameAs(const Value& value, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("sameas", args, {"other"}, 1));
  return value.kind() == bound[0]->kind() && (value.IsSame(*bound[0]) || Equal(value, *bound[0]));
}

TestResult In(const Value& value, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("in", args, {"seq"}, 1));
  return Contains(*bound[0], value);
}

template <bool kNegated>
TestResult EqualTo(const Value& value, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("eq", args, {"other"}, 1));
  return Equal(value, *bound[0]) != kNegated;
}

// value < other, with the sides swapped and equality added as asked.
template <bool kSwapped, bool kOrEqual>
TestResult Ordered(const Value& value, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("lt", args, {"other"}, 1));
  TANDEM_ASSIGN_OR_RETURN(const bool less,
                          kSwapped ? Less(*bound[0], value) : Less(value, *bound[0]));
  return less || (kOrEqual && Equal(value, *bound[0]));
}

const std::map<std::string, TestFunction>& Table() {
  static const std::map<std::string, TestFunction> kTable = {{"!=", EqualTo<true>},
                                                             {"<", Ordered<false, false>},
                                                             {"<=", Ordered<false, true>},
                                                             {"==", EqualTo<false>},
                                                             {">", Ordered<true, false>},
                                                             {">=", Ordered<true, true>},
                                                             {"boolean", Simple<Boolean>},
                                                             {"callable", Simple<Callable>},
                                                             {"defined", Simple<Defined>},
                                                             {"divisibleby", DivisibleBy},
                                                             {"eq", EqualTo<false>},
                                                             {"equalto", EqualTo<false>},
                                                             {"escaped", Simple<Escaped>},
                                                             {"even", Parity<0>},
                                                             {"false", Simple<False>},
                                                             {"filter", Simple<IsFilterName>},
                                                             {"float", Simple<IsFloat>},
                                                             {"ge", Ordered<true, true>},
                                                             {"greaterthan", Ordered<true, false>},
                                                             {"gt", Ordered<true, false>},
                                                             {"in", In},
                                                             {"integer", Simple<Integer>},
                                                             {"iterable", Simple<Iterable>},
                                                             {"le", Ordered<false, true>},
                                                             {"lessthan", Ordered<false, false>},
                                                             {"lower", Simple<LowerCased>},
                                                             {"lt", Ordered<false, false>},
                                                             {"mapping", Simple<IsMapping>},
                                                             {"ne", EqualTo<true>},
                                                             {"none", Simple<IsNone>},
                                                             {"number", Simple<Number>},
                                                             {"odd", Parity<1>},
                                                             {"sameas", SameAs},
                                                             {"sequence", Simple<IsSequence>},
                                                             {"string", Simple<IsText>},
                                                             {"test", Simple<IsTestName>},
                                                             {"true", Simple<True>},
                                                             {"undefined", Simple<Undefined>},
                                                             {"upper", Simple<UpperCased>}};
  return kTable;
}

}  // namespace

bool HasTest(const std::string& name) { return Table().contains(name); }

absl::StatusOr<bool> ApplyTest(const std::string& name, const Value& input, const Args& args) {
  const auto it = Table().find(name);
  if (it == Table().end()) return InvalidArgument("No test named '{}' is supported", name);
  return it->second(input, args);
}

}  // namespace tandem::jinja
