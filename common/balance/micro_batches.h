// Sequences → micro-batches of equal work below a limit of tokens, as verl makes them. The trainer
// packs in order of sample id instead (trainer_worker/packing.h), because a group's samples share
// the rows of their prompt there.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

struct MicroBatchOptions {
  int64_t max_tokens = 0;   // of a micro-batch
  int64_t min_batches = 1;  // at least as many: the largest number that another rank needs
  int64_t multiple = 1;     // the number of micro-batches is a multiple of it (pipelines)
  int64_t group_size = 1;   // as many neighbours stay together
  bool small_ends = true;   // micro-batches of least work first and last; else by differencing
};

// Lists of indices into `lengths` [sequences], in tokens: a partition by largest differencing of
// Workload(), with ceil(sum / max_tokens) lists or more, until none has over max_tokens (verl
// utils/seqlen_balancing.py, rearrange_micro_batches). InvalidArgument: no sequences, one or a
// group above max_tokens, a number of sequences that is no multiple of group_size, or more
// micro-batches wanted than there are groups.
absl::StatusOr<std::vector<std::vector<int64_t>>> RearrangeMicroBatches(
    const std::vector<int64_t>& lengths, const MicroBatchOptions& options);

// Where element i of the original order is found in the lists one behind the other: what puts
// results back in order. InvalidArgument: the lists are no permutation of 0, 1, ...
absl::StatusOr<std::vector<int64_t>> ReverseIndex(const std::vector<std::vector<int64_t>>& lists);

}  // namespace tandem
