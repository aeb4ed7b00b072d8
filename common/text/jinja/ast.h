// The tree of a template. Nodes evaluate themselves (evaluate.cc, render.cc) and are never changed
// after parsing, so that one tree serves many threads.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "common/text/jinja/value/operators.h"
#include "common/text/jinja/value/value.h"

namespace tandem::jinja {

struct Frame;  // jinja/render.h

struct Expression {
  explicit Expression(int line_) : line(line_) {}
  virtual ~Expression() = default;
  // Compute, within the allowance of the rendering.
  absl::StatusOr<Value> Evaluate(Frame& frame) const;
  int line;

 private:
  virtual absl::StatusOr<Value> Compute(Frame& frame) const = 0;
};
using ExpressionPtr = std::unique_ptr<Expression>;

// How a statement affects the enclosing loop.
enum class Flow { kNext, kBreak, kContinue };

struct Statement {
  explicit Statement(int line_) : line(line_) {}
  virtual ~Statement() = default;
  // Appends to `out`.
  virtual absl::StatusOr<Flow> Render(Frame& frame, std::string& out) const = 0;
  int line;
};
using Body = std::vector<std::unique_ptr<Statement>>;

// (a, *args, key=b, **kwargs)
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr spread, named_spread;

  absl::StatusOr<Args> Evaluate(Frame& frame) const;
};

// The target of an assignment: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;
  std::vector<Target> parts;

  absl::Status Assign(Frame& frame, const Value& value) const;
};

struct Literal : Expression {
  Literal(int l, Value v) : Expression(l), value(std::move(v)) {}
  absl::StatusOr<Value> Compute(Frame&) const override { return value; }
  Value value;
};

struct Name : Expression {
  Name(int l, std::string n) : Expression(l), name(std::move(n)) {}
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  std::string name;
};

struct SequenceDisplay : Expression {
  SequenceDisplay(int l, bool tuple) : Expression(l), is_tuple(tuple) {}
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  bool is_tuple;
  std::vector<ExpressionPtr> items;
};

struct MappingDisplay : Expression {
  using Expression::Expression;
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};

struct Unary : Expression {
  enum class Kind { kNot, kMinus, kPlus };
  Unary(int l, Kind k, ExpressionPtr o) : Expression(l), kind(k), operand(std::move(o)) {}
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  Kind kind;
  ExpressionPtr operand;
};

struct Binary : Expression {
  Binary(int l, Operator o, ExpressionPtr a, ExpressionPtr b)
      : Expression(l), op(o), left(std::move(a)), right(std::move(b)) {}
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  Operator op;
  ExpressionPtr left, right;
};

// and, or: return the operand that decided.
struct Logical : Expression {
  Logical(int l, bool conjunction, ExpressionPtr a, ExpressionPtr b)
      : Expression(l), is_and(conjunction), left(std::move(a)), right(std::move(b)) {}
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  bool is_and;
  ExpressionPtr left, right;
};

// a < b <= c ...
struct Comparison : Expression {
  enum class Kind { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
  Comparison(int l, ExpressionPtr f) : Expression(l), first(std::move(f)) {}
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  ExpressionPtr first;
  std::vector<std::pair<Kind, ExpressionPtr>> rest;
};

// a ~ b ~ c
struct Concatenation : Expression {
  using Expression::Expression;
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  std::vector<ExpressionPtr> parts;
};

// a if test else b
struct Conditional : Expression {
  Conditional(int l, ExpressionPtr t, ExpressionPtr a, ExpressionPtr b)
      : Expression(l), test(std::move(t)), then(std::move(a)), otherwise(std::move(b)) {}
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  ExpressionPtr test, then, otherwise;  // otherwise may be null
};

struct Attribute : Expression {
  Attribute(int l, ExpressionPtr o, std::string n)
      : Expression(l), object(std::move(o)), name(std::move(n)) {}
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  ExpressionPtr object;
  std::string name;
};

struct Item : Expression {
  Item(int l, ExpressionPtr o, ExpressionPtr k)
      : Expression(l), object(std::move(o)), key(std::move(k)) {}
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  ExpressionPtr object, key;
};

struct Slice : Expression {
  Slice(int l, ExpressionPtr o) : Expression(l), object(std::move(o)) {}
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  ExpressionPtr object, start, stop, step;  // parts may be null
};

struct Call : Expression {
  Call(int l, ExpressionPtr c, CallArguments a)
      : Expression(l), callee(std::move(c)), arguments(std::move(a)) {}
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  ExpressionPtr callee;
  CallArguments arguments;
};

struct Filter : Expression {
  Filter(int l, ExpressionPtr i, std::string n, CallArguments a)
      : Expression(l), input(std::move(i)), name(std::move(n)), arguments(std::move(a)) {}
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  ExpressionPtr input;  // null: the rendered body of a filter or set block
  std::string name;
  CallArguments arguments;
};

struct Test : Expression {
  Test(int l, ExpressionPtr i, std::string n, CallArguments a)
      : Expression(l), input(std::move(i)), name(std::move(n)), arguments(std::move(a)) {}
  absl::StatusOr<Value> Compute(Frame& frame) const override;
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};

struct DataStatement : Statement {
  DataStatement(int l, std::string t) : Statement(l), text(std::move(t)) {}
  absl::StatusOr<Flow> Render(Frame& frame, std::string& out) const override;
  std::string text;
};

struct OutputStatement : Statement {
  OutputStatement(int l, ExpressionPtr e) : Statement(l), expression(std::move(e)) {}
  absl::StatusOr<Flow> Render(Frame& frame, std::string& out) const override;
  ExpressionPtr expression;
};

struct IfStatement : Statement {
  using Statement::Statement;
  absl::StatusOr<Flow> Render(Frame& frame, std::string& out) const override;
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};

struct ForStatement : Statement {
  using Statement::Statement;
  absl::StatusOr<Flow> Render(Frame& frame, std::string& out) const override;
  // One run over `iterable`; a recursive loop calls it again, one level deeper.
  absl::StatusOr<Flow> RenderItems(Frame& frame,
                                   const Value& iterable,
                                   int64_t depth,
                                   std::string& out) const;
  Target target;
  ExpressionPtr iterable, condition;  // condition may be null
  Body body, otherwise;
  bool recursive = false;
};

struct SetStatement : Statement {
  using Statement::Statement;
  absl::StatusOr<Flow> Render(Frame& frame, std::string& out) const override;
  Target target;
  ExpressionPtr value;
};

// {% set x | filter %}...{% endset %}; without target: {% filter ... %}...{% endfilter %}.
struct CaptureStatement : Statement {
  using Statement::Statement;
  absl::StatusOr<Flow> Render(Frame& frame, std::string& out) const override;
  std::optional<Target> target;
  ExpressionPtr filter;  // may be null
  Body body;
};

// {% with %}, {% generation %}, {% block %}: a body with names of its own.
struct ScopeStatement : Statement {
  using Statement::Statement;
  absl::StatusOr<Flow> Render(Frame& frame, std::string& out) const override;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body;
};

struct MacroDefinition {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // default may be null
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct MacroStatement : Statement {
  using Statement::Statement;
  absl::StatusOr<Flow> Render(Frame& frame, std::string& out) const override;
  MacroDefinition macro;
};

// {% call(x) f(...) %}body{% endcall %}: the body is the macro `caller` of the call.
struct CallBlockStatement : Statement {
  using Statement::Statement;
  absl::StatusOr<Flow> Render(Frame& frame, std::string& out) const override;
  MacroDefinition caller;
  std::unique_ptr<Call> call;
};

struct LoopControlStatement : Statement {
  LoopControlStatement(int l, Flow f) : Statement(l), flow(f) {}
  absl::StatusOr<Flow> Render(Frame&, std::string&) const override { return flow; }
  Flow flow;
};

}  // namespace tandem::jinja
