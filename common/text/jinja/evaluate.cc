// How expressions evaluate.
#include "common/base/status.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/builtins.h"
#include "common/text/jinja/render.h"
#include "common/text/jinja/value/allowance.h"
#include "common/text/jinja/value/operators.h"
#include "common/text/jinja/value/print.h"
#include "common/text/jinja/value/subscript.h"

namespace tandem::jinja {
namespace {

absl::StatusOr<bool> Compare(Comparison::Kind kind, const Value& a, const Value& b) {
  using Relation = Comparison::Kind;
  switch (kind) {
    case Relation::kEqual:
      return Equal(a, b);
    case Relation::kNotEqual:
      return !Equal(a, b);
    case Relation::kLess:
      return Less(a, b);
    case Relation::kGreater:
      return Less(b, a);
    case Relation::kLessEqual: {
      TANDEM_ASSIGN_OR_RETURN(const bool less, Less(a, b));
      return less || Equal(a, b);
    }
    case Relation::kGreaterEqual: {
      TANDEM_ASSIGN_OR_RETURN(const bool greater, Less(b, a));
      return greater || Equal(a, b);
    }
    case Relation::kIn:
      return Contains(b, a);
    case Relation::kNotIn: {
      TANDEM_ASSIGN_OR_RETURN(const bool contained, Contains(b, a));
      return !contained;
    }
  }
  return false;
}

// A missing slice part is None.
absl::StatusOr<Value> OrNone(const ExpressionPtr& part, Frame& frame) {
  if (part == nullptr) return Value::None();
  return part->Evaluate(frame);
}

}  // namespace

absl::StatusOr<Value> Expression::Evaluate(Frame& frame) const {
  Allowance& allowance = frame.runtime.allowance;
  const DepthScope depth(&allowance);
  if (depth.too_deep()) return allowance.status();
  TANDEM_RETURN_IF_ERROR(allowance.Step());
  absl::StatusOr<Value> value = Compute(frame);
  // The result may be truncated.
  if (!allowance.ok()) return allowance.status();
  return value;
}

absl::StatusOr<Args> CallArguments::Evaluate(Frame& frame) const {
  Args args;
  for (const ExpressionPtr& argument : positional) {
    TANDEM_ASSIGN_OR_RETURN(Value value, argument->Evaluate(frame));
    args.positional.push_back(std::move(value));
  }
  if (spread != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(const Value value, spread->Evaluate(frame));
    TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(value));
    args.positional.insert(args.positional.end(), items.begin(), items.end());
  }
  for (const auto& [name, argument] : named) {
    TANDEM_ASSIGN_OR_RETURN(Value value, argument->Evaluate(frame));
    args.named.emplace_back(name, std::move(value));
  }
  if (named_spread != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(const Value value, named_spread->Evaluate(frame));
    if (!value.is(Kind::kMapping)) {
      return InvalidArgument("argument after ** must be a mapping, not {}", TypeName(value));
    }
    for (const auto& [key, item] : value.mapping().items) {
      args.named.emplace_back(ToText(key), item);
    }
  }
  return args;
}

absl::StatusOr<Value> Name::Compute(Frame& frame) const {
  const Value* value = frame.scope->Find(name);
  return value != nullptr ? *value : Value::Undefined(fmt::format("'{}' is undefined", name));
}

absl::StatusOr<Value> SequenceDisplay::Compute(Frame& frame) const {
  Values values;
  for (const ExpressionPtr& item : items) {
    TANDEM_ASSIGN_OR_RETURN(Value value, item->Evaluate(frame));
    values.push_back(std::move(value));
  }
  return is_tuple ? Value::Tuple(std::move(values)) : Value::List(std::move(values));
}

absl::StatusOr<Value> MappingDisplay::Compute(Frame& frame) const {
  Mapping mapping;
  for (const auto& [key_node, value_node] : items) {
    TANDEM_ASSIGN_OR_RETURN(const Value key, key_node->Evaluate(frame));
    TANDEM_RETURN_IF_ERROR(CheckHashable(key));
    TANDEM_ASSIGN_OR_RETURN(Value value, value_node->Evaluate(frame));
    mapping.Set(key, std::move(value));
  }
  return Value::Map(std::move(mapping));
}

absl::StatusOr<Value> Unary::Compute(Frame& frame) const {
  TANDEM_ASSIGN_OR_RETURN(const Value value, operand->Evaluate(frame));
  if (kind == Kind::kNot) return Value::Bool(!Truthy(value));
  return kind == Kind::kMinus ? Negate(value) : Plus(value);
}

absl::StatusOr<Value> Binary::Compute(Frame& frame) const {
  TANDEM_ASSIGN_OR_RETURN(const Value a, left->Evaluate(frame));
  TANDEM_ASSIGN_OR_RETURN(const Value b, right->Evaluate(frame));
  return Apply(op, a, b);
}

absl::StatusOr<Value> Logical::Compute(Frame& frame) const {
  TANDEM_ASSIGN_OR_RETURN(Value value, left->Evaluate(frame));
  if (Truthy(value) != is_and) return value;
  return right->Evaluate(frame);
}

absl::StatusOr<Value> Comparison::Compute(Frame& frame) const {
  TANDEM_ASSIGN_OR_RETURN(Value current, first->Evaluate(frame));
  for (const auto& [kind, operand] : rest) {
    TANDEM_ASSIGN_OR_RETURN(Value next, operand->Evaluate(frame));
    TANDEM_ASSIGN_OR_RETURN(const bool holds, Compare(kind, current, next));
    if (!holds) return Value::Bool(false);
    current = std::move(next);
  }
  return Value::Bool(true);
}

absl::StatusOr<Value> Concatenation::Compute(Frame& frame) const {
  std::string text;
  for (const ExpressionPtr& part : parts) {
    TANDEM_ASSIGN_OR_RETURN(const Value value, part->Evaluate(frame));
    const std::string part_text = ToText(value);
    if (!MayGrow(text, part_text.size())) return frame.runtime.allowance.status();
    text += part_text;
  }
  return Value::String(std::move(text));
}

absl::StatusOr<Value> Conditional::Compute(Frame& frame) const {
  TANDEM_ASSIGN_OR_RETURN(const Value condition, test->Evaluate(frame));
  if (Truthy(condition)) return then->Evaluate(frame);
  if (otherwise != nullptr) return otherwise->Evaluate(frame);
  return Value::Undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.",
      line));
}

absl::StatusOr<Value> Attribute::Compute(Frame& frame) const {
  TANDEM_ASSIGN_OR_RETURN(const Value value, object->Evaluate(frame));
  return GetAttributeOrFail(value, name);
}

absl::StatusOr<Value> Item::Compute(Frame& frame) const {
  TANDEM_ASSIGN_OR_RETURN(const Value value, object->Evaluate(frame));
  TANDEM_ASSIGN_OR_RETURN(const Value index, key->Evaluate(frame));
  return GetItem(value, index);
}

absl::StatusOr<Value> Slice::Compute(Frame& frame) const {
  TANDEM_ASSIGN_OR_RETURN(const Value value, object->Evaluate(frame));
  TANDEM_ASSIGN_OR_RETURN(const Value from, OrNone(start, frame));
  TANDEM_ASSIGN_OR_RETURN(const Value to, OrNone(stop, frame));
  TANDEM_ASSIGN_OR_RETURN(const Value stride, OrNone(step, frame));
  return GetSlice(value, from, to, stride);
}

absl::StatusOr<Value> Call::Compute(Frame& frame) const {
  TANDEM_ASSIGN_OR_RETURN(const Value function, callee->Evaluate(frame));
  TANDEM_ASSIGN_OR_RETURN(const Args args, arguments.Evaluate(frame));
  return CallValue(frame.runtime, function, args);
}

absl::StatusOr<Value> Filter::Compute(Frame& frame) const {
  Value value;
  if (input != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(value, input->Evaluate(frame));
  } else {
    value = *frame.captured;
  }
  TANDEM_ASSIGN_OR_RETURN(const Args args, arguments.Evaluate(frame));
  return ApplyFilter(frame.runtime, name, value, args);
}

absl::StatusOr<Value> Test::Compute(Frame& frame) const {
  TANDEM_ASSIGN_OR_RETURN(const Value value, input->Evaluate(frame));
  TANDEM_ASSIGN_OR_RETURN(const Args args, arguments.Evaluate(frame));
  TANDEM_ASSIGN_OR_RETURN(const bool holds, ApplyTest(name, value, args));
  return Value::Bool(holds);
}

}  // namespace tandem::jinja
