// Values in the grammar of Hydra's overrides, as verl's scripts write them.
#pragma once

#include <optional>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

// An override without its value: "+data.x=1" -> {"data.x", "1"}; "~data.x" -> {"data.x", none}.
struct HydraOverride {
  std::string key;
  std::optional<std::string> value;  // none: the key gets its default again, which is Hydra's ~
};

// Splits `text`. `+` and `++` mean the same here, as every key is there already, and the value of
// `~key=value` is not looked at. InvalidArgument: no override, or one that chooses another file of
// a config group (`actor@actor_rollout_ref.actor=...`).
absl::StatusOr<HydraOverride> SplitHydraOverride(const std::string& text);

// What Hydra's grammar makes of `text`, written as YAML: {a:1,b:[x,y]} -> {"a": 1, "b": [x, y]}.
// Quotes are taken off, a backslash escapes one of \()[]{}:=, space and tab, and int(), float(),
// str() and bool() are casts. InvalidArgument: no such value, or a sweep (choice(), range()).
absl::StatusOr<std::string> HydraValueToYaml(const std::string& text);

}  // namespace tandem
