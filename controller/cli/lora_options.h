// The command line of `tandemctl lora merge`.
#pragma once

#include <CLI/CLI.hpp>

#include "controller/cli/lora_command.h"

namespace tandem {

// `options` outlives the command.
void AddMergeOptions(CLI::App& merge, LoraMergeOptions& options);

}  // namespace tandem
