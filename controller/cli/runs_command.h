// tandemctl runs: every run below a folder, from the files of each.
#pragma once

#include <ostream>
#include <string>

#include <absl/status/status.h>

namespace tandem {

// A row for each run directory at or below `root` (RunDirectories), the newest start first: state,
// steps, reward, start, newest sign of it. A run that cannot be read has its error in its row, or
// in the member "error" of its JSON. NotFound: there is none.
absl::Status RunsCommand(const std::string& root, bool json, std::ostream& out);

}  // namespace tandem
