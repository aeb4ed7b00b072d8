// Selects the largest k of numbers that are spread over ranks, without gathering them: counts the
// values of their bytes, from the highest byte on, until the k largest are known.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "trainer_worker/losses/loss_options.h"

namespace tandem {

// Ordered lexicographically; the first word is the most significant.
using SelectionKey = std::array<uint64_t, 3>;

// Collective, with the same `count` on every rank: 1 for every key of this rank that is among the
// `count` largest of all ranks. Keys must be unique: of equal keys at the border none is chosen.
// Takes at most 24 all-reduces of 256 numbers, usually about as many as the first word has bytes.
absl::StatusOr<std::vector<uint8_t>> SelectLargest(const std::vector<SelectionKey>& keys,
                                                   int64_t count,
                                                   Communicator& communicator);

// The tokens of a mini-batch that a loss treats differently (policy/clip_cov.cc, policy/kl_cov.cc).
// They are chosen among all of its counted tokens, on all ranks, by their covariance
//   cov = (A − mean(A)) (logπ − mean(logπ)).
// The choice depends on the mini-batch alone, not on ranks, micro-batches or packing.
enum class Selection {
  kNone,
  kClipCov,  // random tokens with cov between two bounds, among those that are not clipped
  kKlCov,    // the tokens with the largest cov
};

// A counted token of this rank.
struct SelectionToken {
  float log_prob = 0;  // under the policy that is being trained
  float old_log_prob = 0;
  float advantage = 0;
  uint64_t sample_id = 0;
  int64_t position = 0;  // in the response
};

// Keys the random choice, together with the token's sample and position (Philox).
struct SelectionSeed {
  uint64_t seed = 0;
  int64_t step = 0;
};

// Collective. Returns 1 for every token of `tokens` that is selected, else 0. Of equal covariances
// the token with the lower sample id, then the lower position, comes first. Errors: the
// communicator's.
absl::StatusOr<std::vector<uint8_t>> SelectTokens(Selection selection,
                                                  const std::vector<SelectionToken>& tokens,
                                                  const PolicyLossOptions& options,
                                                  const SelectionSeed& seed,
                                                  Communicator& communicator);

}  // namespace tandem
