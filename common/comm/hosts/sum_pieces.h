// The tensors of a summing collective as one sequence of elements, and each rank's part of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/comm/communicator.h"

namespace tandem {

// A rank's piece of one tensor.
struct SumPiece {
  const float* full = nullptr;  // the calling rank's values
  float* mine = nullptr;        // where the sum goes, on the rank whose piece it is
  int64_t begin = 0;            // in the sequence of that rank's pieces
  int64_t place = 0;            // in the sequence of all tensors
  int64_t count = 0;            // at least 1
};
using SumPieces = std::vector<SumPiece>;

// In the order of the tensors; those without elements are left out.
SumPieces PiecesOf(const std::vector<ScatteredSum>& sums, int rank);
// The tensors themselves: begin and place are equal.
SumPieces WholeTensors(const std::vector<ScatteredSum>& sums);
int64_t ElementsOf(const SumPieces& pieces);

// The piece that has element `at` of the sequence; at is less than ElementsOf.
const SumPiece& PieceAt(const SumPieces& pieces, int64_t at);
// The calling rank's values from byte `offset` of the sequence to the end of their piece.
std::span<const std::byte> ValuesFrom(const SumPieces& pieces, int64_t offset);

// Calls `use(piece, from, length)`, in elements of the piece, for all that lies in
// [begin, end) by the given order: &SumPiece::begin or &SumPiece::place.
template <typename Use>
void ForEachPart(
    const SumPieces& pieces, int64_t SumPiece::*order, int64_t begin, int64_t end, const Use& use) {
  auto piece =
      std::upper_bound(pieces.begin(), pieces.end(), begin,
                       [order](int64_t at, const SumPiece& one) { return at < one.*order; });
  if (piece != pieces.begin()) --piece;
  for (; piece != pieces.end() && (*piece).*order < end; ++piece) {
    const int64_t first = (*piece).*order;
    const int64_t from = std::max(begin, first) - first;
    const int64_t to = std::min(end, first + piece->count) - first;
    if (to > from) use(*piece, from, to - from);
  }
}

}  // namespace tandem
