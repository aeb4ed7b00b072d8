// How the rollout correction is asked for.
#pragma once

#include <optional>
#include <string>

namespace tandem {

// In verl's spelling.
struct RolloutCorrectionOptions {
  std::optional<std::string> rollout_is;  // token or sequence
  std::string rollout_is_threshold = "2.0";
  bool rollout_is_batch_normalize = false;
  std::optional<std::string> rollout_rs;
  std::optional<std::string> rollout_rs_threshold;

  bool enabled() const { return rollout_is || rollout_rs; }
};

}  // namespace tandem
