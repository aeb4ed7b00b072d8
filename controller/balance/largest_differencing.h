// Multi-way number partitioning by the largest differencing method (Karmarkar and Karp 1982):
// repeatedly join the two partial partitions whose sums spread most, the largest set of one with
// the smallest of the other, until one partition is left.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// Returns `parts` lists of indices into `values`, the list with the largest sum first, each list in
// the order of the joins. Ties are broken as in verl utils/seqlen_balancing.py (karmarkar_karp), so
// that both give the same lists, which depend on `values` alone. A list is empty only if there are
// fewer values than parts. Requires parts >= 1 and values >= 0. With `equal_size` all lists have
// the same length, and the number of values must be a multiple of `parts`. Takes about n parts
// log(parts) comparisons.
std::vector<std::vector<int64_t>> LargestDifferencing(const std::vector<int64_t>& values,
                                                      int64_t parts,
                                                      bool equal_size);

}  // namespace tandem
