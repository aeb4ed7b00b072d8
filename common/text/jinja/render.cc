// How statements render, loops and macros excepted.

#include "common/text/jinja/render.h"

#include <algorithm>
#include <map>

#include "common/base/status.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/value/methods.h"
#include "common/text/jinja/value/operators.h"
#include "common/text/jinja/value/print.h"
#include "common/text/jinja/value/subscript.h"
#include "common/text/jinja/value/value.h"

namespace tandem::jinja {

absl::StatusOr<Flow> RenderBody(const Body& body, Frame& frame, std::string& out) {
  Allowance& allowance = frame.runtime.allowance;
  const DepthScope depth(&allowance);
  if (depth.too_deep()) return allowance.status();
  for (const auto& statement : body) {
    absl::StatusOr<Flow> flow = statement->Render(frame, out);
    // The written text may be truncated.
    if (!allowance.Step().ok()) flow = allowance.status();
    if (!flow.ok() && frame.runtime.error_line == 0) frame.runtime.error_line = statement->line;
    if (!flow.ok() || *flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::Status Target::Assign(Frame& frame, const Value& value) const {
  if (parts.empty() && attribute.empty()) {
    frame.scope->Set(name, value);
    return absl::OkStatus();
  }
  if (parts.empty()) {
    const Value* object = frame.scope->Find(name);
    if (object == nullptr || !object->is(Kind::kObject)) {
      return InvalidArgument("cannot assign attribute on non-namespace object '{}'", name);
    }
    return object->object().SetAttribute(attribute, value);
  }
  if (value.is_undefined()) return InvalidArgument("{}", value.undefined_message());
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(value));
  if (items.size() != parts.size()) {
    return InvalidArgument("{} values to unpack (expected {}, got {})",
                           items.size() < parts.size() ? "not enough" : "too many", parts.size(),
                           items.size());
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(parts[i].Assign(frame, items[i]));
  }
  return absl::OkStatus();
}

namespace {

// Nothing where the text would become too long, which ends the rendering.
void AppendText(std::string& out, const std::string& text) {
  if (MayGrow(out, text.size())) out += text;
}

}  // namespace

absl::StatusOr<Flow> DataStatement::Render(Frame&, std::string& out) const {
  AppendText(out, text);
  return Flow::kNext;
}

absl::StatusOr<Flow> OutputStatement::Render(Frame& frame, std::string& out) const {
  TANDEM_ASSIGN_OR_RETURN(const Value value, expression->Evaluate(frame));
  AppendText(out, ToText(value));
  return Flow::kNext;
}

absl::StatusOr<Flow> IfStatement::Render(Frame& frame, std::string& out) const {
  for (const auto& [test, body] : branches) {
    TANDEM_ASSIGN_OR_RETURN(const Value condition, test->Evaluate(frame));
    if (Truthy(condition)) return RenderBody(body, frame, out);
  }
  return RenderBody(otherwise, frame, out);
}

absl::StatusOr<Flow> SetStatement::Render(Frame& frame, std::string&) const {
  TANDEM_ASSIGN_OR_RETURN(const Value result, value->Evaluate(frame));
  TANDEM_RETURN_IF_ERROR(target.Assign(frame, result));
  return Flow::kNext;
}

absl::StatusOr<Flow> CaptureStatement::Render(Frame& frame, std::string& out) const {
  Frame inner{frame.runtime, &frame.runtime.NewScope(frame.scope)};
  std::string text;
  TANDEM_ASSIGN_OR_RETURN(const Flow flow, RenderBody(body, inner, text));
  Value value = Value::String(std::move(text));
  if (filter != nullptr) {
    Frame filtered{frame.runtime, frame.scope, &value};
    TANDEM_ASSIGN_OR_RETURN(value, filter->Evaluate(filtered));
  }
  if (target) {
    TANDEM_RETURN_IF_ERROR(target->Assign(frame, value));
  } else {
    AppendText(out, ToText(value));
  }
  return flow;
}

absl::StatusOr<Flow> ScopeStatement::Render(Frame& frame, std::string& out) const {
  Frame inner{frame.runtime, &frame.runtime.NewScope(frame.scope)};
  for (const auto& [target, expression] : assignments) {
    // Values see the names outside, not each other.
    TANDEM_ASSIGN_OR_RETURN(const Value value, expression->Evaluate(frame));
    TANDEM_RETURN_IF_ERROR(target.Assign(inner, value));
  }
  return RenderBody(body, inner, out);
}

absl::StatusOr<Flow> MacroStatement::Render(Frame& frame, std::string&) const {
  frame.scope->Set(macro.name, MakeMacro(macro, frame));
  return Flow::kNext;
}

absl::StatusOr<Flow> CallBlockStatement::Render(Frame& frame, std::string& out) const {
  TANDEM_ASSIGN_OR_RETURN(const Value function, call->callee->Evaluate(frame));
  TANDEM_ASSIGN_OR_RETURN(Args args, call->arguments.Evaluate(frame));
  args.named.emplace_back("caller", MakeMacro(caller, frame));
  TANDEM_ASSIGN_OR_RETURN(const Value result, CallValue(frame.runtime, function, args));
  AppendText(out, ToText(result));
  return Flow::kNext;
}

// For loops and the variable `loop`.

namespace {

class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  Loop(const ForStatement& statement, Scope* scope, Values items, int64_t depth)
      : statement_(statement), scope_(scope), items_(std::move(items)), depth_(depth) {}

  void LetGo() override { last_.reset(); }
  void MoveTo(size_t index) { index_ = static_cast<int64_t>(index); }
  const Values& items() const { return items_; }

  std::string TypeName() const override { return "LoopContext"; }
  std::string Print() const override {
    return fmt::format("<LoopContext {}/{}>", index_ + 1, items_.size());
  }

  std::optional<Value> GetAttribute(const std::string& name) override {
    const int64_t size = static_cast<int64_t>(items_.size());
    if (name == "index") return Value::Int(index_ + 1);
    if (name == "index0") return Value::Int(index_);
    if (name == "first") return Value::Bool(index_ == 0);
    if (name == "last") return Value::Bool(index_ + 1 == size);
    if (name == "length") return Value::Int(size);
    if (name == "revindex") return Value::Int(size - index_);
    if (name == "revindex0") return Value::Int(size - index_ - 1);
    if (name == "depth") return Value::Int(depth_ + 1);
    if (name == "depth0") return Value::Int(depth_);
    if (name == "previtem") return Neighbour(index_ - 1, "there is no previous item");
    if (name == "nextitem") return Neighbour(index_ + 1, "there is no next item");
    if (name == "cycle") return Method(name, &Loop::Cycle);
    if (name == "changed") return Method(name, &Loop::Changed);
    return std::nullopt;
  }

  bool is_callable() const override { return true; }
  absl::StatusOr<Value> Call(Runtime& runtime, const Args& args) override {
    if (!statement_.recursive) {
      return InvalidArgument("The loop must have the 'recursive' marker to be called recursively.");
    }
    if (runtime.call_depth >= kMaxCallDepth) {
      return InvalidArgument("the loop calls itself too deeply");
    }
    TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("loop", args, {"iterable"}, 1));
    Frame frame{runtime, scope_};
    std::string out;
    ++runtime.call_depth;
    const auto flow = statement_.RenderItems(frame, *bound[0], depth_ + 1, out);
    --runtime.call_depth;
    TANDEM_RETURN_IF_ERROR(flow.status());
    return Value::String(std::move(out));
  }

 private:
  Value Neighbour(int64_t index, const char* message) const {
    if (index < 0 || index >= static_cast<int64_t>(items_.size())) return Value::Undefined(message);
    return items_[static_cast<size_t>(index)];
  }

  Value Method(const std::string& name, absl::StatusOr<Value> (Loop::*method)(const Args&)) {
    return MakeFunction(name, [self = shared_from_this(), method](Runtime&, const Args& args) {
      return ((*self).*method)(args);
    });
  }

  absl::StatusOr<Value> Cycle(const Args& args) {
    if (args.positional.empty()) return InvalidArgument("no items for cycling given");
    return args.positional[static_cast<size_t>(index_) % args.positional.size()];
  }

  absl::StatusOr<Value> Changed(const Args& args) {
    const Value now = Value::Tuple(args.positional);
    const bool changed = !last_ || !Equal(*last_, now);
    last_ = now;
    return Value::Bool(changed);
  }

  const ForStatement& statement_;
  Scope* scope_;
  const Values items_;
  const int64_t depth_;
  int64_t index_ = 0;
  std::optional<Value> last_;
};

// The items that pass the loop's condition.
absl::StatusOr<Values> SelectItems(const ForStatement& statement, Frame& frame, Values items) {
  if (statement.condition == nullptr) return items;
  Values selected;
  for (Value& item : items) {
    TANDEM_RETURN_IF_ERROR(frame.runtime.allowance.Step());
    Frame inner{frame.runtime, &frame.runtime.NewScope(frame.scope)};
    TANDEM_RETURN_IF_ERROR(statement.target.Assign(inner, item));
    TANDEM_ASSIGN_OR_RETURN(const Value passes, statement.condition->Evaluate(inner));
    if (Truthy(passes)) selected.push_back(std::move(item));
  }
  return selected;
}

}  // namespace

absl::StatusOr<Flow> ForStatement::Render(Frame& frame, std::string& out) const {
  TANDEM_ASSIGN_OR_RETURN(const Value value, iterable->Evaluate(frame));
  return RenderItems(frame, value, 0, out);
}

absl::StatusOr<Flow> ForStatement::RenderItems(Frame& frame,
                                               const Value& value,
                                               int64_t depth,
                                               std::string& out) const {
  TANDEM_ASSIGN_OR_RETURN(Values items, Iterate(value));
  TANDEM_ASSIGN_OR_RETURN(items, SelectItems(*this, frame, std::move(items)));
  Runtime& runtime = frame.runtime;
  const auto loop = std::make_shared<Loop>(*this, frame.scope, std::move(items), depth);
  const Value loop_value = Value::Of(loop);
  bool completed = false;  // whether an iteration came to its end
  for (size_t i = 0; i < loop->items().size(); ++i) {
    TANDEM_RETURN_IF_ERROR(runtime.allowance.Step());
    const size_t mark = runtime.scopes.size();
    const int closures = runtime.closures;
    loop->MoveTo(i);
    Frame inner{runtime, &runtime.NewScope(frame.scope)};
    TANDEM_RETURN_IF_ERROR(target.Assign(inner, loop->items()[i]));
    inner.scope->Set("loop", loop_value);
    TANDEM_ASSIGN_OR_RETURN(const Flow flow, RenderBody(body, inner, out));
    // Without macros nothing refers to the iteration's scopes any more.
    while (runtime.closures == closures && runtime.scopes.size() > mark) runtime.scopes.pop_back();
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
  }
  // As in jinja2, `else` also runs if all iterations were cut short by break or continue.
  if (completed) return Flow::kNext;
  Frame inner{runtime, &runtime.NewScope(frame.scope)};
  return RenderBody(otherwise, inner, out);
}

namespace {

class Macro : public Object {
 public:
  Macro(const MacroDefinition& definition, Scope* scope) : definition_(definition), scope_(scope) {}

  std::string TypeName() const override { return "Macro"; }
  std::string Print() const override { return "<Macro '" + definition_.name + "'>"; }
  bool is_callable() const override { return true; }

  std::optional<Value> GetAttribute(const std::string& name) override {
    if (name == "name") return Value::String(definition_.name);
    if (name == "caller") return Value::Bool(definition_.uses_caller);
    return std::nullopt;
  }

  absl::StatusOr<Value> Call(Runtime& runtime, const Args& args) override {
    if (runtime.call_depth >= kMaxCallDepth) {
      return InvalidArgument("macro '{}' calls itself too deeply", definition_.name);
    }
    Frame frame{runtime, &runtime.NewScope(scope_)};
    TANDEM_RETURN_IF_ERROR(BindArguments(frame, args));
    ++runtime.call_depth;
    std::string out;
    const absl::StatusOr<Flow> flow = RenderBody(definition_.body, frame, out);
    --runtime.call_depth;
    TANDEM_RETURN_IF_ERROR(flow.status());
    return Value::String(std::move(out));
  }

 private:
  absl::Status BindArguments(Frame& frame, const Args& args) const {
    auto named = args.named;
    const auto take = [&named](const std::string& name) -> std::optional<Value> {
      MayWork(named.size());
      const auto it = std::find_if(named.begin(), named.end(),
                                   [&name](const auto& item) { return item.first == name; });
      if (it == named.end()) return std::nullopt;
      Value value = it->second;
      named.erase(it);
      return value;
    };
    const auto& parameters = definition_.parameters;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& [name, fallback] = parameters[i];
      std::optional<Value> value;
      if (i < args.positional.size()) {
        value = args.positional[i];
      } else {
        value = take(name);
      }
      if (!value && fallback != nullptr) {
        TANDEM_ASSIGN_OR_RETURN(value, fallback->Evaluate(frame));
      } else if (!value) {
        value = Value::Undefined(fmt::format("parameter '{}' was not provided", name));
      }
      frame.scope->Set(name, *std::move(value));
    }
    if (definition_.uses_caller) {
      const bool is_parameter =
          std::any_of(parameters.begin(), parameters.end(),
                      [](const auto& parameter) { return parameter.first == "caller"; });
      if (!is_parameter) {
        frame.scope->Set("caller", take("caller").value_or(Value::Undefined("No caller defined")));
      }
    }
    return BindRest(frame, args, std::move(named));
  }

  absl::Status BindRest(Frame& frame,
                        const Args& args,
                        std::vector<std::pair<std::string, Value>> named) const {
    const size_t count = definition_.parameters.size();
    if (definition_.uses_kwargs) {
      Mapping rest;
      for (auto& [name, value] : named) rest.Set(Value::String(name), std::move(value));
      frame.scope->Set("kwargs", Value::Map(std::move(rest)));
    } else if (!named.empty()) {
      return InvalidArgument("macro '{}' takes no keyword argument '{}'", definition_.name,
                             named[0].first);
    }
    if (definition_.uses_varargs) {
      Values rest;
      for (size_t i = count; i < args.positional.size(); ++i) rest.push_back(args.positional[i]);
      frame.scope->Set("varargs", Value::Tuple(std::move(rest)));
    } else if (args.positional.size() > count) {
      return InvalidArgument("macro '{}' takes not more than {} argument(s)", definition_.name,
                             count);
    }
    return absl::OkStatus();
  }

  const MacroDefinition& definition_;
  Scope* scope_;
};

}  // namespace

Value MakeMacro(const MacroDefinition& definition, Frame& frame) {
  ++frame.runtime.closures;
  return Value::Of(std::make_shared<Macro>(definition, frame.scope));
}

}  // namespace tandem::jinja
