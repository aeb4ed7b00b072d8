// tandemctl steps of a run that no controller serves, from its records.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include <absl/status/status.h>

namespace tandem {

struct StepsOptions {
  int64_t first_step = 1;
  int64_t last_step = 0;  // 0: to the newest
  bool undone = false;    // those that recoveries have undone
  bool json = false;
};

// Reads RUN_DIR/run.db, which it does not change, and prints what a controller would answer, but
// for the ledgers of phases. Errors as SqliteRunReader.
absl::Status StepsOfRun(const std::string& run_dir, const StepsOptions& options, std::ostream& out);

}  // namespace tandem
