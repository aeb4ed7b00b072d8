#include "common/text/jinja/macro.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/text/jinja/render_body.h"

namespace tandem::jinja {
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
