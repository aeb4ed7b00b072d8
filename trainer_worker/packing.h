// Samples → micro-batches: whole sequences one after the other, at most `max_tokens` together.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "common/types/sample.h"

namespace tandem {

// Tokens of one micro-batch, all sequences concatenated. A scored row is a row whose next token is
// a trained response token: row r predicts tokens[r + 1].
struct PackedBatch {
  struct Sequence {
    int64_t sample = 0;  // index into the samples
    int64_t first_row = 0;
    int64_t rows = 0;
  };
  std::vector<Sequence> sequences;
  std::vector<int32_t> tokens;  // [rows]
  // One entry per scored row, in order of rows.
  std::vector<int32_t> scored_rows;
  std::vector<int32_t> targets;
  std::vector<float> temperatures;
  std::vector<int32_t> scored_sequence;  // index into `sequences`
  std::vector<int32_t> scored_response;  // index of the target in its sample's response arrays

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  int64_t scored() const { return static_cast<int64_t>(targets.size()); }
};

struct PackingLimits {
  int64_t max_tokens = 0;           // of one micro-batch: actor.ppo_max_token_len_per_gpu
  int64_t max_sequence_tokens = 0;  // positions that the model was set up for
  int64_t vocab_limit = 0;          // ids at or above are refused
  bool allow_off_support = false;   // take samples drawn through top-p or top-k
};

// Deterministic: samples are taken in ascending order of sample id and put into the current
// micro-batch while they fit. No samples, no micro-batches. InvalidArgument names a sample that
// exceeds a limit alone, has inconsistent arrays, or a token outside [0, vocab_limit).
absl::StatusOr<std::vector<PackedBatch>> PackSamples(const std::vector<Sample>& samples,
                                                     const PackingLimits& limits);

}  // namespace tandem
