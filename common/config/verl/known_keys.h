// The keys of verl's that are known: those of its trainer's configuration and of its example
// scripts.
#pragma once

#include <span>
#include <string_view>

namespace tandem {

struct VerlKey {
  std::string_view key;       // "actor_rollout_ref.rollout.n"
  const char* default_value;  // as JSON; nullptr where verl's YAML does not have the key
};

// In alphabetical order.
std::span<const VerlKey> KnownVerlKeys();

// The versions of verl that the keys were taken from, the one of the defaults first.
std::string_view KnownVerlVersions();

// nullptr: not known.
const VerlKey* FindVerlKey(std::string_view key);

}  // namespace tandem
