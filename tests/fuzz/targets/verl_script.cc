// A script that starts verl, or verl's overrides, made a configuration.
#include <optional>
#include <string>

#include <absl/time/time.h>

#include "controller/cli/verl/from_verl_command.h"
#include "tests/fuzz/target.h"

TANDEM_FUZZ_TARGET(verl_script) {
  const tandem::ScriptContext context = {
      .environment = [](const std::string& name) -> std::optional<std::string> {
        if (name == "HOME") return "/home/user";
        return std::nullopt;
      },
      .arguments = {"trainer.total_epochs=1", "a b"},
      .now = absl::UnixEpoch()};
  (void)tandem::ConfigFromVerl("script.sh", std::string(input), context);
}
