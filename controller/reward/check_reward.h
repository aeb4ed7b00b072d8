// Whether the reward section can work, told before anything starts.
#pragma once

#include <absl/status/status.h>

#include "common/config/config.h"

namespace tandem {

// What only the functions themselves know: names of terms, arguments, patterns. InvalidArgument
// lists every problem, one per line, with the key and where it was given. Calls nobody.
absl::Status CheckReward(const v1::Reward& config, const ConfigOrigins& origins = {});

}  // namespace tandem
