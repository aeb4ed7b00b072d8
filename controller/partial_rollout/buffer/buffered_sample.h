// What all samples of a pool have in common.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/types/sample.h"
#include "controller/data/prompt.h"
#include "controller/partial_rollout/buffer/token_file.h"

namespace tandem {

struct PoolOptions {
  std::string tokenizer_digest;
  int64_t vocab_limit = 0;  // ids at or above are no tokens
  int64_t samples_per_prompt = 1;
  SamplingParams sampling;  // max_tokens: the budget of a response, over all its rounds
  bool log_probs = true;    // come with the tokens
  // A file below it is left as it is.
  int64_t compact_above_bytes = int64_t{64} << 20;
};

// What may not change while samples are in the middle of their generation: values as text, by the
// names of their keys.
std::map<std::string, std::string> FixedSettings(const PoolOptions& options);

// Of runs that may follow each other's CutJournal: tokenizer, response length and settings.
std::string CutsIdentity(const PoolOptions& options);

// What the pool knows of its samples without reading their arrays.

// Consecutive response tokens that one weight version sampled.
struct VersionRun {
  int64_t version = 0;
  int64_t tokens = 0;

  bool operator==(const VersionRun&) const = default;
};

// Of one version per token, and back.
std::vector<VersionRun> RunsOf(const std::vector<int64_t>& versions);
std::vector<int64_t> PerToken(const std::vector<VersionRun>& runs);

// What the newest round has to do with a sample.
struct RoundPart {
  bool issued = false;        // it is one of the round's
  bool sent = false;          // asked of the rollouts
  bool out = false;           // and not back yet
  bool is_final = false;      // may not be cut
  int64_t tokens_before = 0;  // of the response
  int64_t allowed = 0;        // new tokens; 0: up to the budget
};

struct PooledSample {
  uint64_t sample_id = 0;
  std::vector<VersionRun> versions;  // ascending; together the response so far
  int64_t offset = 0;                // of its arrays in the pool's file
  bool log_probs = false;            // are among them
  bool off_support = false;
  float temperature = 1;
  FinishReason finish = FinishReason::kNone;  // kStop or kLength when finished
  RoundPart round;

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
  // Of all tokens; the largest there is where it has none.
  int64_t oldest_version() const;
};

struct PoolState {
  std::map<int64_t, PooledGroup> groups;  // by the pool's number: order of drawing
  int64_t next_group = 0;
  std::shared_ptr<PoolFile> file;  // of the samples' arrays
};

}  // namespace tandem
