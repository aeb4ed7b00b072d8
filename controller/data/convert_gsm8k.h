// A user's GSM8K file (question, answer per line) in verl's columns.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

// Reads `input` (convert_rows.h), writes `output` atomically, returns the rows written. The ground
// truth is what follows the last "#### " of the answer, without commas. Errors name file and line.
absl::StatusOr<int64_t> ConvertGsm8k(const std::string& input, const std::string& output);

}  // namespace tandem
