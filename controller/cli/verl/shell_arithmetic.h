// $((...)) of bash.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

// The value of `expression`, whose expansions are done: whole numbers of 64 bits that wrap, and
// bash's operators without assignments. `variable` gives the text of a name. InvalidArgument: no
// such expression, or a division by 0.
absl::StatusOr<int64_t> ShellArithmetic(
    const std::string& expression,
    const std::function<std::string(const std::string& name)>& variable);

}  // namespace tandem
