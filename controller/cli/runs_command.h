// tandemctl runs: every run below a folder, from the files of each.
#pragma once

#include <ostream>
#include <string>

#include <absl/status/status.h>

namespace tandem {

// A row for each run directory at or below `root` (RunDirectories), that with the newest sign of it
// first: state, steps, reward of the newest step, time it ran, newest sign. Runs that cannot be
// read come last, with the reason below the table; in JSON they have it as "unreadable", and
// neither a state nor the "error" of a run that failed. NotFound: there is none.
absl::Status RunsCommand(const std::string& root, bool json, std::ostream& out);

}  // namespace tandem
