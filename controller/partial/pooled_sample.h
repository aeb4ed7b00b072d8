// What the pool knows of a sample without reading its arrays.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/types/prompt.h"
#include "common/types/sample.h"

namespace tandem {

// Consecutive response tokens that one weight version sampled.
struct VersionRun {
  int64_t version = 0;
  int64_t tokens = 0;

  bool operator==(const VersionRun&) const = default;
};

struct PooledSample {
  uint64_t sample_id = 0;
  std::vector<VersionRun> versions;  // ascending; together the response so far
  int64_t offset = 0;                // of its arrays in the pool's file
  bool log_probs = false;            // are among them
  bool off_support = false;
  float temperature = 1;
  FinishReason finish = FinishReason::kNone;  // kStop or kLength when finished
  bool out = false;                           // asked of the rollouts, and not back yet
  bool issued = false;                        // in the newest round
  int64_t tokens_before = 0;                  // of the response, when that round began
  bool is_final = false;                      // in that round

  bool finished() const { return finish != FinishReason::kNone; }
  int64_t tokens() const;  // of the response so far
  // Newest less oldest weight version.
  int64_t span() const {
    return versions.empty() ? 0 : versions.back().version - versions.front().version;
  }
  // Weight versions before `version` that it has tokens of.
  int64_t versions_before(int64_t version) const;
};

struct PooledGroup {
  std::shared_ptr<const Prompt> prompt;
  std::vector<PooledSample> samples;  // by index in the group

  bool whole() const;
};

}  // namespace tandem
