// Packs samples into micro-batches: complete sequences one after another, at most `max_tokens` rows
// together. A prompt that several samples of a micro-batch share has its rows there once.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "common/types/sample.h"

namespace tandem {

// The tokens of a micro-batch, all sequences concatenated. A row's score is the log-prob of the
// token that follows it, if that is a trained response token. Tokens after the last scored row of a
// sequence have no row, unless they belong to the prompt.
struct PackedBatch {
  struct Sequence {
    int64_t sample = 0;  // index into the samples
    // The sequence's own rows, possibly none: its tokens from prefix_rows on.
    int64_t first_row = 0;
    int64_t rows = 0;
    // The sequence's prompt, if it is shared with an earlier sequence: the first rows of that one.
    int64_t prefix = -1;  // index into `sequences`, -1: none
    int64_t prefix_rows = 0;
  };
  std::vector<Sequence> sequences;
  std::vector<int32_t> tokens;  // [rows]
  // One entry per score, ordered by sequence and position. The last row of a shared prompt is
  // scored once for each sequence, with that sequence's first response token.
  std::vector<int32_t> scored_rows;
  std::vector<int32_t> targets;
  std::vector<float> temperatures;
  std::vector<int32_t> scored_sequence;  // index into `sequences`
  std::vector<int32_t> scored_response;  // index of the target in its sample's response arrays

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  int64_t scored() const { return static_cast<int64_t>(targets.size()); }  // at most max_tokens
};

// The sample that score `i` belongs to.
inline const Sample& ScoredSample(const PackedBatch& batch,
                                  const std::vector<Sample>& samples,
                                  size_t i) {
  const auto sequence = static_cast<size_t>(batch.scored_sequence[i]);
  return samples[static_cast<size_t>(batch.sequences[sequence].sample)];
}

struct PackingLimits {
  int64_t max_tokens = 0;           // of one micro-batch: actor.ppo_max_token_len_per_gpu
  int64_t max_sequence_tokens = 0;  // positions that the model is set up for
  int64_t vocab_limit = 0;          // ids at or above it are refused
  bool allow_off_support = false;   // accept samples drawn with top-p or top-k
  // False: every sequence has rows of its own (used by tests to compare).
  bool share_prompts = true;
};

// Deterministic: samples are added to the current micro-batch in ascending order of sample id while
// they fit; consecutive samples with the same prompt share its rows. Without samples there are no
// micro-batches. InvalidArgument names a sample that exceeds a limit by itself, has inconsistent
// arrays, or has a token outside [0, vocab_limit).
absl::StatusOr<std::vector<PackedBatch>> PackSamples(const std::vector<Sample>& samples,
                                                     const PackingLimits& limits);

// Random keys of the dropout before adapters: one per row of a micro-batch, [batch.rows()], for
// AdapterDropout::rows. A response token's key is a function of `seed`, `version` (of the weights
// that the pass trains, so that every mini-batch has its own keys), sample id and position. A
// prompt token's key depends on the prompt's tokens instead of the sample id, so that it is the
// same whether samples share the prompt's rows or not. Packing, the number of ranks and a resume do
// not change the keys.
std::vector<uint64_t> DropoutRowKeys(const PackedBatch& batch,
                                     const std::vector<Sample>& samples,
                                     uint64_t seed,
                                     int64_t version);

}  // namespace tandem
