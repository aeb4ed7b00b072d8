#include "common/comm/sum_rounds.h"

#include <algorithm>
#include <numeric>

#include "common/base/numeric.h"

namespace tandem {
namespace {

constexpr int64_t kAlignment = 16;  // elements: a cache line

}  // namespace

std::vector<SumRound> RoundsOf(const std::vector<ScatteredSum>& sums, int64_t room) {
  std::vector<SumRound> rounds(1);
  int64_t used = 0;  // of the last round's buffer
  for (size_t i = 0; i < sums.size(); ++i) {
    const std::vector<int64_t>& counts = sums[i].counts_per_rank;
    const int64_t most = *std::max_element(counts.begin(), counts.end());
    for (int64_t begin = 0; begin < most; begin += room) {
      const int64_t length = std::min(most - begin, room);
      if (used + length > room) {
        rounds.emplace_back();
        used = 0;
      }
      rounds.back().push_back({i, begin, length, used});
      used = RoundUp(used + length, kAlignment);
    }
  }
  return rounds;
}

int64_t LengthOn(const SumPart& part, const ScatteredSum& sum, int rank) {
  const int64_t count = sum.counts_per_rank[static_cast<size_t>(rank)];
  return std::clamp<int64_t>(count - part.begin, 0, part.length);
}

int64_t PieceOffset(const ScatteredSum& sum, int rank) {
  const auto first = sum.counts_per_rank.begin();
  return std::accumulate(first, first + rank, int64_t{0});
}

std::vector<int64_t> SizesOf(const std::vector<ScatteredSum>& sums) {
  std::vector<int64_t> sizes;
  for (const ScatteredSum& sum : sums) {
    sizes.insert(sizes.end(), sum.counts_per_rank.begin(), sum.counts_per_rank.end());
  }
  return sizes;
}

}  // namespace tandem
