// Samples → micro-batches: whole sequences one after the other, at most `max_tokens` rows together.
// A prompt that samples of a micro-batch have in common has its rows there once.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "common/types/sample.h"

namespace tandem {

// Tokens of one micro-batch, all sequences concatenated. A row is scored with the token that
// follows it, if that is a trained response token. Tokens behind which nothing is scored have no
// row.
struct PackedBatch {
  struct Sequence {
    int64_t sample = 0;  // index into the samples
    // The sequence's own rows, maybe none: its tokens from prefix_rows on.
    int64_t first_row = 0;
    int64_t rows = 0;
    // Its prompt, if that is the prompt of an earlier sequence too: the first rows of that one.
    int64_t prefix = -1;  // index into `sequences`, -1: none
    int64_t prefix_rows = 0;
  };
  std::vector<Sequence> sequences;
  std::vector<int32_t> tokens;  // [rows]
  // One entry per score, by sequence and position. The last row of a prompt that is shared counts
  // once for each sequence: with the first token of each.
  std::vector<int32_t> scored_rows;
  std::vector<int32_t> targets;
  std::vector<float> temperatures;
  std::vector<int32_t> scored_sequence;  // index into `sequences`
  std::vector<int32_t> scored_response;  // index of the target in its sample's response arrays

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  int64_t scored() const { return static_cast<int64_t>(targets.size()); }  // at most max_tokens
};

// The sample of score `i`.
inline const Sample& ScoredSample(const PackedBatch& batch,
                                  const std::vector<Sample>& samples,
                                  size_t i) {
  const auto sequence = static_cast<size_t>(batch.scored_sequence[i]);
  return samples[static_cast<size_t>(batch.sequences[sequence].sample)];
}

struct PackingLimits {
  int64_t max_tokens = 0;           // of one micro-batch: actor.ppo_max_token_len_per_gpu
  int64_t max_sequence_tokens = 0;  // positions that the model was set up for
  int64_t vocab_limit = 0;          // ids at or above are refused
  bool allow_off_support = false;   // take samples drawn through top-p or top-k
  bool share_prompts = true;        // false: every sequence has rows of its own (tests compare)
};

// Deterministic: samples are taken in ascending order of sample id and put into the current
// micro-batch while they fit; neighbours with the same prompt share its rows. No samples, no
// micro-batches. InvalidArgument names a sample that exceeds a limit alone, has inconsistent
// arrays, or a token outside [0, vocab_limit).
absl::StatusOr<std::vector<PackedBatch>> PackSamples(const std::vector<Sample>& samples,
                                                     const PackingLimits& limits);

// Which random numbers dropout in front of adapters takes: a key for every row of a micro-batch.

// [batch.rows()], for AdapterDropout::rows. A response token's is a function of `seed`, `version`
// (of the weights that the pass trains, so that every mini-batch has its own), sample id and
// position; a prompt token's of the prompt's tokens instead of the sample, so that samples may
// share its rows or not. Neither packing nor ranks nor a resume shows.
std::vector<uint64_t> DropoutRowKeys(const PackedBatch& batch,
                                     const std::vector<Sample>& samples,
                                     uint64_t seed,
                                     int64_t version);

}  // namespace tandem
