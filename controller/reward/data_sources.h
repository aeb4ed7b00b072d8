// Which scorer belongs to which public data set.
#pragma once

#include <set>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

// The function that reward.function = auto uses for a data_source, as verl's default_compute_score
// chooses: openai/gsm8k, the MATH sets, math_dapo and aime*, searchR1_*; and tandem/addition.
// InvalidArgument for any other, with the remedy: for a source whose scorer needs what is not here
// (Numina's computer algebra, code execution, pictures) it says so.
absl::StatusOr<std::string> FunctionOfDataSource(const std::string& data_source);

// Those that have a function by name; one that begins with aime has math_dapo's besides.
std::set<std::string> KnownDataSources();

}  // namespace tandem
