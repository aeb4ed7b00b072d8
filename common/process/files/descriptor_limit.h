// How many files and connections this process may have open.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

namespace tandem {

// Raises the limit of open descriptors of this process (RLIMIT_NOFILE) as far as it may without
// privileges; returns the limit. Shells and service managers begin with 1024, as select() allows no
// more, which nothing here uses.
int64_t RaiseDescriptorLimit();

// FailedPrecondition: a controller with so many workers needs more descriptors than `limit`: two
// for each of them, one for its connection and one for that to it, and some for files.
absl::Status CheckDescriptors(int64_t workers, int64_t limit);

}  // namespace tandem
