// What stands behind `is`.
#include <map>

#include "common/base/status_macros.h"
#include "common/text/jinja/registry.h"
#include "common/text/jinja/value/arguments.h"
#include "common/text/jinja/value/arithmetic.h"
#include "common/text/jinja/value/compare.h"
#include "common/text/jinja/value/print.h"
#include "common/text/unicode/properties.h"

namespace tandem::jinja {
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
bool LowerCased(const Value& v) {
  const std::string text = ToText(v);
  return ToLower(text) == text && ToUpper(text) != text;
}
bool UpperCased(const Value& v) {
  const std::string text = ToText(v);
  return ToUpper(text) == text && ToLower(text) != text;
}
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
