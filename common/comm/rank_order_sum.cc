#include "common/comm/rank_order_sum.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr int64_t kBlock = 256;  // values summed at a time, in registers and first-level cache

// `sum` = the sources' values [begin, begin + count) in order; count is at most kBlock.
template <typename T>
void SumBlock(const std::vector<const T*>& sources, int64_t begin, int64_t count, T* sum) {
  std::copy_n(sources[0] + begin, count, sum);
  for (size_t s = 1; s < sources.size(); ++s) {
    const T* __restrict source = sources[s] + begin;
    for (int64_t i = 0; i < count; ++i) sum[i] += source[i];
  }
}

template <typename T>
void Sum(const std::vector<const T*>& sources, int64_t count, T* out, bool add) {
  T sum[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    SumBlock(sources, begin, n, sum);
    if (add) {
      for (int64_t i = 0; i < n; ++i) out[begin + i] += sum[i];
    } else {
      std::copy_n(sum, n, out + begin);
    }
  }
}

}  // namespace

void OrderedSum(const std::vector<const float*>& sources, int64_t count, float* out, bool add) {
  Sum(sources, count, out, add);
}
void OrderedSum(const std::vector<const double*>& sources, int64_t count, double* out, bool add) {
  Sum(sources, count, out, add);
}

}  // namespace tandem
