// The commands that need no controller: import, data, config.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/process/exit_code.h"
#include "controller/data/make_addition.h"

namespace tandem {

absl::Status ImportGgufCommand(const std::string& gguf, const std::string& dir, std::ostream& out);

// `task`: addition. InvalidArgument lists the known tasks.
absl::Status MakeDataCommand(const std::string& task,
                             const std::string& dir,
                             const AdditionOptions& options,
                             std::ostream& out);
// `format`: gsm8k or math. InvalidArgument lists the known formats.
absl::Status ConvertDataCommand(const std::string& format,
                                const std::string& input,
                                const std::string& output,
                                std::ostream& out);

absl::Status ConfigExplainCommand(const std::string& key, std::ostream& out);
absl::Status ConfigMarkdownCommand(std::ostream& out);
// Loads and validates as the controller would, prints the resolved config. `failed_at` says what an
// error is about.
absl::Status ConfigCheckCommand(const std::string& path,
                                const std::vector<std::string>& overrides,
                                FailedAt* failed_at,
                                std::ostream& out);

}  // namespace tandem
