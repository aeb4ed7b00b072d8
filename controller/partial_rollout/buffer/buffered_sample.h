// What the rollout buffer keeps in memory of a sample: everything but its token arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/types/sample.h"
#include "controller/data/prompt.h"
#include "controller/partial_rollout/buffer/token_file.h"

namespace tandem {

// Settings that all samples of a buffer share.
struct BufferOptions {
  std::string tokenizer_digest;
  int64_t vocab_limit = 0;  // token ids are below it
  int64_t samples_per_prompt = 1;
  SamplingParams sampling;  // max_tokens: the budget of a response, over all its rounds
  bool log_probs = true;    // whether rollouts return them
  int64_t compact_above_bytes = int64_t{64} << 20;  // smaller token files are never compacted
};

// Settings that may not change while samples are unfinished: values as text, by the names of their
// configuration keys.
std::map<std::string, std::string> FixedSettings(const BufferOptions& options);

// Equal for runs that may continue each other's RoundJournal: tokenizer, response length and
// settings.
std::string RoundJournalIdentity(const BufferOptions& options);

// Consecutive response tokens that one weight version sampled.
struct VersionRun {
  int64_t version = 0;
  int64_t tokens = 0;

  bool operator==(const VersionRun&) const = default;
};

// Run-length encoding of one version per token, and its inverse.
std::vector<VersionRun> ToVersionRuns(const std::vector<int64_t>& versions);
std::vector<int64_t> PerToken(const std::vector<VersionRun>& runs);

struct BufferedSample {
  uint64_t sample_id = 0;
  std::vector<VersionRun> versions;  // ascending; together the response so far
  int64_t offset = 0;                // of its arrays in the token file
  bool log_probs = false;            // whether the arrays include them
  bool off_support = false;
  float temperature = 1;
  FinishReason finish = FinishReason::kNone;  // kStop or kLength when finished

  bool finished() const { return finish != FinishReason::kNone; }
  int64_t tokens() const;  // of the response so far
  // Newest minus oldest weight version.
  int64_t span() const {
    return versions.empty() ? 0 : versions.back().version - versions.front().version;
  }
  // How many weight versions older than `version` sampled some of its tokens.
  int64_t versions_before(int64_t version) const;
};

struct BufferedGroup {
  std::shared_ptr<const Prompt> prompt;
  std::vector<BufferedSample> samples;  // by index in the group

  bool complete() const;  // all samples are finished
  // The oldest weight version of its tokens; the largest int64_t if it has none.
  int64_t oldest_version() const;
};

// Hands the samples of the group to `take`, one by one, by index, with their arrays from `file`, as
// far as they are generated, and with Sample::group = `position`. Errors as TokenFile::Read, and of
// `take`.
absl::Status ReadGroup(const TokenFile& file,
                       const BufferedGroup& group,
                       int64_t position,
                       const std::function<absl::Status(Sample)>& take);

// The batch of a later step, whole and of one weight version (trainer.off_policy_steps).
struct SampledAhead {
  int64_t step = 0;     // that trains it
  int64_t version = 0;  // of the weights that sampled every token

  bool operator==(const SampledAhead&) const = default;
};

struct BufferState {
  std::map<int64_t, BufferedGroup> groups;  // by number, in the order in which they were drawn
  int64_t next_group = 0;
  std::shared_ptr<TokenFile> file;  // of the samples' arrays
  // nullopt: groups are not sampled ahead, or by a run that did not say so.
  std::optional<SampledAhead> ahead;
};

}  // namespace tandem
