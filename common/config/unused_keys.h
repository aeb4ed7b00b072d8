// Keys that were given but have no effect, or probably not the intended one, because of the value
// of another key.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"

namespace tandem {

// One line per key, in the order of a table: where the key was given, that it has no effect, and
// what would give it one. One more line if algorithm.partial_rollout_max_split cuts after every
// token. A key is left out if the key that switches it was given too and it has its default value,
// as in a complete configuration printed by ConfigToYaml. `config` is resolved.
std::vector<std::string> UnusedKeyNotices(const v1::Config& config, const ConfigOrigins& origins);

}  // namespace tandem
