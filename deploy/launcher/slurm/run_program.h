// Runs a short program and reads what it prints.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// The path of a program in the folders of PATH. NotFound names the program and PATH.
absl::StatusOr<std::string> FindProgram(const std::string& name);

// What `argv` (argv[0] is a path) writes on stdout; its stderr is this process's. Waits for it.
// Internal: it cannot be run, or does not end with 0.
absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& argv);

}  // namespace tandem
