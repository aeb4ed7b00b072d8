// Amounts of memory as people write them.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

// "80GiB", "512 MiB", "80GB", "1073741824" (bytes); K, M, G, T with iB (powers of 1024) or B
// (powers of 1000). InvalidArgument: names the text and the valid spellings; also for less than 1
// MiB, where a unit was probably forgotten.
absl::StatusOr<int64_t> ParseBytes(const std::string& text);

}  // namespace tandem
