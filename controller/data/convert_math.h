// A user's MATH files (Hendrycks et al. 2021: problem, solution, level, type) in verl's columns.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

// `input`: JSONL, or the folder of the original release with a file per problem (convert_rows.h).
// The ground truth is the column answer where there is one (MATH-500), else the last box of the
// solution. An answer that is empty is
// refused. level, type and subject go to extra_info. Returns the rows written; errors name file
// and line.
absl::StatusOr<int64_t> ConvertMath(const std::string& input, const std::string& output);

}  // namespace tandem
