// Methods of strings, lists and mappings, and native functions as values.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <absl/status/statusor.h>

#include "common/text/jinja/value/value.h"

namespace tandem::jinja {

using Function = std::function<absl::StatusOr<Value>(Runtime&, const Args&)>;

// A callable value.
Value MakeFunction(const std::string& name, Function function);

// The bound method `name`, nullopt if there is none. Methods that would change a list or mapping
// are found, and refused when called, as in the immutable sandbox.
std::optional<Value> FindMethod(const Value& value, const std::string& name);

// Calls the string method, nullopt if there is none of that name.
using StringMethod = absl::StatusOr<Value> (*)(const std::string& self, const Args& args);
StringMethod FindStringMethod(const std::string& name);

}  // namespace tandem::jinja
