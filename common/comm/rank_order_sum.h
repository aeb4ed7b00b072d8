// Sums of the ranks' values in ascending rank order: ((r0 + r1) + r2) + ...
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// out[i] = (or +=) the sum over `sources` of source[i]. `out` may be one of the sources if `add` is
// false.
void OrderedSum(const std::vector<const float*>& sources, int64_t count, float* out, bool add);
void OrderedSum(const std::vector<const double*>& sources, int64_t count, double* out, bool add);

}  // namespace tandem
