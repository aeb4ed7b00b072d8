// tandemctl compare: where two runs part.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

struct CompareOptions {
  std::string a, b;  // run directories
  int64_t step = 0;  // 0: all that both have
  bool json = false;
};

// Returns whether the runs are equal over the compared steps. Errors as RunDirView::Open and
// CompareRuns.
absl::StatusOr<bool> CompareCommand(const CompareOptions& options, std::ostream& out);

}  // namespace tandem
