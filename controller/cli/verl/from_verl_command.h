// `tandemctl config from-verl`: a verl script, or its overrides, as a Tandem configuration.
#pragma once

#include <istream>
#include <ostream>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "controller/cli/verl/shell_evaluator.h"

namespace tandem {

struct FromVerlOptions {
  std::string script;                  // "" or "-": standard input, a script or overrides alone
  std::vector<std::string> arguments;  // the script's $1, $2, ...
  std::string output;                  // "": standard output
};

// The configuration as YAML: each key with the line that set it, verl's defaults where they decide
// the result and differ from Tandem's, and as comments what has no effect and what differs besides.
// `name` is how the script is called in it. InvalidArgument: the script cannot be evaluated, or
// asks for something that cannot be honoured; all of it is named.
absl::StatusOr<std::string> ConfigFromVerl(const std::string& name,
                                           const std::string& script,
                                           const ScriptContext& context);

// Reads the script, and writes what ConfigFromVerl makes of it; an output file is replaced at once,
// which is said. NotFound: the script; errors of writing as WriteFileAtomically.
absl::Status FromVerlCommand(const FromVerlOptions& options, std::istream& in, std::ostream& out);

}  // namespace tandem
