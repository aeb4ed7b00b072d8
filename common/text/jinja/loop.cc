// For loops and the variable `loop`.
#include <map>

#include "common/base/status_macros.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/frame.h"
#include "common/text/jinja/render_body.h"
#include "common/text/jinja/value/arguments.h"
#include "common/text/jinja/value/compare.h"
#include "common/text/jinja/value/methods.h"

namespace tandem::jinja {
namespace {

class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  Loop(const ForStatement& statement, Scope* scope, Values items, int64_t depth)
      : statement_(statement), scope_(scope), items_(std::move(items)), depth_(depth) {}

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
  bool completed = false;  // whether an iteration came to its end
  for (size_t i = 0; i < loop->items().size(); ++i) {
    const size_t mark = runtime.scopes.size();
    const int closures = runtime.closures;
    loop->MoveTo(i);
    Frame inner{runtime, &runtime.NewScope(frame.scope)};
    TANDEM_RETURN_IF_ERROR(target.Assign(inner, loop->items()[i]));
    inner.scope->Set("loop", Value::Of(loop));
    TANDEM_ASSIGN_OR_RETURN(const Flow flow, RenderBody(body, inner, out));
    // Without macros nothing refers to the iteration's scopes any more.
    while (runtime.closures == closures && runtime.scopes.size() > mark) runtime.scopes.pop_back();
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
  }
  // As jinja2 has it, iterations cut short by break or continue do not keep `else` away.
  if (completed) return Flow::kNext;
  Frame inner{runtime, &runtime.NewScope(frame.scope)};
  return RenderBody(otherwise, inner, out);
}

}  // namespace tandem::jinja
