// Multi-way number partitioning by the largest differencing method (Karmarkar and Karp 1982): take
// the two partial partitions whose sums spread most, join the largest set of one with the smallest
// of the other, and so on, until one is left.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// `parts` lists of indices into `values`, in the order that the method ends with: the list of the
// largest sum first; each list in the order of the joins. Ties are broken as in verl
// utils/seqlen_balancing.py (karmarkar_karp), so that the lists are the same: a pure function of
// `values`. Lists are empty only where there are fewer values than parts. parts >= 1, values >= 0.
// equal_size: lists of equal length; then the number of values is a multiple of `parts`.
// About n parts log(parts) comparisons.
std::vector<std::vector<int64_t>> LargestDifferencing(const std::vector<int64_t>& values,
                                                      int64_t parts,
                                                      bool equal_size);

// The same with each list ascending (verl: get_seqlen_balanced_partitions). InvalidArgument: fewer
// values than parts, or equal_size with a number of values that is no multiple of `parts`.
absl::StatusOr<std::vector<std::vector<int64_t>>> BalancedPartitions(
    const std::vector<int64_t>& values, int64_t parts, bool equal_size);

}  // namespace tandem
