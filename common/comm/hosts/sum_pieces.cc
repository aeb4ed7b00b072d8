#include "common/comm/hosts/sum_pieces.h"

#include <numeric>

#include "common/comm/sum_rounds.h"

namespace tandem {

SumPieces PiecesOf(const std::vector<ScatteredSum>& sums, int rank) {
  SumPieces pieces;
  int64_t begin = 0, tensor = 0;
  for (const ScatteredSum& sum : sums) {
    const int64_t count = sum.counts_per_rank[static_cast<size_t>(rank)];
    const int64_t offset = PieceOffset(sum, rank);
    if (count > 0) pieces.push_back({sum.full + offset, sum.mine, begin, tensor + offset, count});
    begin += count;
    tensor += std::accumulate(sum.counts_per_rank.begin(), sum.counts_per_rank.end(), int64_t{0});
  }
  return pieces;
}

SumPieces WholeTensors(const std::vector<ScatteredSum>& sums) {
  SumPieces pieces;
  int64_t tensor = 0;
  for (const ScatteredSum& sum : sums) {
    const int64_t count =
        std::accumulate(sum.counts_per_rank.begin(), sum.counts_per_rank.end(), int64_t{0});
    if (count > 0) pieces.push_back({sum.full, nullptr, tensor, tensor, count});
    tensor += count;
  }
  return pieces;
}

int64_t ElementsOf(const SumPieces& pieces) {
  return pieces.empty() ? 0 : pieces.back().begin + pieces.back().count;
}

const SumPiece& PieceAt(const SumPieces& pieces, int64_t at) {
  const auto after =
      std::upper_bound(pieces.begin(), pieces.end(), at,
                       [](int64_t place, const SumPiece& one) { return place < one.begin; });
  return *(after - 1);
}

std::span<const std::byte> ValuesFrom(const SumPieces& pieces, int64_t offset) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  const SumPiece& piece = PieceAt(pieces, offset / kBytes);
  const int64_t from = offset - piece.begin * kBytes;
  return std::as_bytes(std::span(piece.full, static_cast<size_t>(piece.count)))
      .subspan(static_cast<size_t>(from));
}

}  // namespace tandem
