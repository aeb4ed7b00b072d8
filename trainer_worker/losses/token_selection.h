// The largest k of numbers that are spread over ranks, without gathering them: bytes of the numbers
// are counted, the highest first, until it is known which of them belong to the k.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "trainer_worker/losses/loss_options.h"

namespace tandem {

// Ordered by its words, the first one the most significant.
using SelectionKey = std::array<uint64_t, 3>;

// Collective, the same `count` on every rank: 1 for every key of this rank that is among the
// `count` largest of all ranks'. Keys are unique: of equal ones at the border none is chosen. At
// most 24 sums of 256 numbers; usually about as many as the first word has bytes.
absl::StatusOr<std::vector<uint8_t>> SelectLargest(const std::vector<SelectionKey>& keys,
                                                   int64_t count,
                                                   Communicator& communicator);

// Which tokens of a mini-batch a loss treats apart (policy/clip_cov.cc, policy/kl_cov.cc): chosen
// among all of its counted tokens, wherever they lie, by their covariance
//   cov = (A − mean(A)) (logπ − mean(logπ)).
// The choice is a function of the mini-batch alone: not of ranks, micro-batches or packing.
enum class Selection {
  kNone,
  kClipCov,  // at random between two bounds of cov, of the tokens that are not clipped
  kKlCov,    // the largest cov
};

// One counted token of this rank.
struct SelectionToken {
  float log_prob = 0;  // under the policy that is being trained
  float old_log_prob = 0;
  float advantage = 0;
  uint64_t sample_id = 0;
  int64_t position = 0;  // in the response
};

// Keys the random choice, with the token's sample and position (Philox).
struct SelectionSeed {
  uint64_t seed = 0;
  int64_t step = 0;
};

// Collective. 1 for every token of `tokens` that is selected, else 0.
// Of equal covariances the token of the lower sample id and position comes first. The
// communicator's errors.
absl::StatusOr<std::vector<uint8_t>> SelectTokens(Selection selection,
                                                  const std::vector<SelectionToken>& tokens,
                                                  const PolicyLossOptions& options,
                                                  const SelectionSeed& seed,
                                                  Communicator& communicator);

}  // namespace tandem
