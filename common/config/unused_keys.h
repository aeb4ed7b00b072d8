// Keys that were given and have no effect, because another key says so, or probably not the
// intended one.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"

namespace tandem {

// One line each, in the order of a table: where the key was given, that it has no effect, and what
// would give it one; and one for algorithm.partial_rollout_max_split where it cuts after every
// token. A key whose switch was given too, and which has the value that it would have
// without being given, says nothing of itself, as in a whole configuration printed by ConfigToYaml:
// it is left out. `config` is resolved.
std::vector<std::string> UnusedKeyNotices(const v1::Config& config, const ConfigOrigins& origins);

}  // namespace tandem
