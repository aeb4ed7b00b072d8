// The state of a rendering: scopes, frames and macros.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/time/time.h>

#include "common/text/jinja/ast.h"
#include "common/text/jinja/value/allowance.h"
#include "common/text/jinja/value/value.h"

namespace tandem::jinja {

// The names of one block. Lookups continue in the parent, assignments never do.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string, Value>> variables;

  const Value* Find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
      if (!MayWork(scope->variables.size())) return nullptr;
      for (const auto& [key, value] : scope->variables) {
        if (key == name) return &value;
      }
    }
    return nullptr;
  }
  void Set(const std::string& name, Value value) {
    MayWork(variables.size());
    for (auto& [key, old] : variables) {
      if (key == name) {
        old = std::move(value);
        return;
      }
    }
    variables.emplace_back(name, std::move(value));
  }
};

// The state of one rendering. Owns all scopes until its end, because a macro refers to the scope in
// which it was defined.
struct Runtime {
  absl::Time now;
  absl::TimeZone zone;
  Allowance allowance;  // outlives the values of the scopes
  std::deque<Scope> scopes;
  int closures = 0;    // macros made so far, which refer to scopes
  int call_depth = 0;  // of macros and recursive loops
  int error_line = 0;  // of the innermost statement that failed, 0: none

  Scope& NewScope(Scope* parent) {
    allowance.Work(sizeof(Scope));
    return scopes.emplace_back(Scope{parent, {}});
  }
};

inline constexpr int kMaxCallDepth = 100;

struct Frame {
  Runtime& runtime;
  Scope* scope;
  const Value* captured = nullptr;  // the text on which a block's filters work
};

// A list of statements in order. Stops at break and continue; notes the line of the first error in
// the runtime.
absl::StatusOr<Flow> RenderBody(const Body& body, Frame& frame, std::string& out);

// Macros as callable values. The definition must outlive the runtime. Names are looked up where the
// macro was defined.
Value MakeMacro(const MacroDefinition& definition, Frame& frame);

}  // namespace tandem::jinja
