// How statements render, loops and macros excepted.
#include "common/base/status_macros.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/frame.h"
#include "common/text/jinja/macro.h"
#include "common/text/jinja/render_body.h"
#include "common/text/jinja/value/compare.h"
#include "common/text/jinja/value/print.h"
#include "common/text/jinja/value/subscript.h"

namespace tandem::jinja {

absl::StatusOr<Flow> RenderBody(const Body& body, Frame& frame, std::string& out) {
  for (const auto& statement : body) {
    const absl::StatusOr<Flow> flow = statement->Render(frame, out);
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

absl::StatusOr<Flow> DataStatement::Render(Frame&, std::string& out) const {
  out += text;
  return Flow::kNext;
}

absl::StatusOr<Flow> OutputStatement::Render(Frame& frame, std::string& out) const {
  TANDEM_ASSIGN_OR_RETURN(const Value value, expression->Evaluate(frame));
  out += ToText(value);
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
    out += ToText(value);
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
  out += ToText(result);
  return Flow::kNext;
}

}  // namespace tandem::jinja
