// What a training script would pass to verl, worked out without running anything: assignments,
// expansions, arithmetic, if, case and for are evaluated; no command is started, and no file is
// written or read. What only a command could tell is unknown, and refused by name where an override
// or a condition needs it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace tandem {

struct ScriptContext {
  // A variable of the environment.
  std::function<std::optional<std::string>(const std::string& name)> environment;
  std::vector<std::string> arguments;  // $1, $2, ...
  absl::Time now;                      // for $(date +FORMAT), in local time
};

struct ScriptArgument {
  std::string text;
  int line = 0;  // where it is written: of an array, the line of the entry; 0: the command line
};

struct ScriptCommand {
  std::vector<ScriptArgument> arguments;  // after verl.trainer.main_ppo
  int line = 0;
  std::vector<std::string> notes;   // what was assumed, such as a variable that is not set
  std::vector<std::string> unread;  // the context's arguments that nothing in the script reads
};

// The one command of `script` that starts verl.trainer.main_ppo. InvalidArgument, beginning with
// the line where there is one: no such command or several, something unknown that it needs, what
// bash would not read, or a script without an end.
absl::StatusOr<ScriptCommand> EvaluateScript(const std::string& script,
                                             const ScriptContext& context);

}  // namespace tandem
