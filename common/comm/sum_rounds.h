// How a collective over many tensors goes through a buffer of fixed size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/comm/communicator.h"

namespace tandem {

// Elements [begin, begin + length) of every rank's piece of a tensor; a rank with a shorter piece
// has fewer of them or none.
struct SumPart {
  size_t sum = 0;  // index of the tensor
  int64_t begin = 0;
  int64_t length = 0;  // on the rank that has the most; at least 1
  int64_t offset = 0;  // elements into the buffer; a multiple of 16
  bool operator==(const SumPart&) const = default;
};
// Parts that lie in the buffer side by side.
using SumRound = std::vector<SumPart>;

// All elements of `sums` once, in order, in rounds for a buffer of `room` elements per rank; at
// least one round, which is empty where there are no elements. The same on all ranks. A tensor
// whose pieces fit the buffer is not cut, and the cuts of a larger one do not depend on the other
// tensors.
std::vector<SumRound> RoundsOf(const std::vector<ScatteredSum>& sums, int64_t room);

// How many elements of a part `rank` has.
int64_t LengthOn(const SumPart& part, const ScatteredSum& sum, int rank);
// Where rank's piece of a tensor begins in `full`, in elements.
int64_t PieceOffset(const ScatteredSum& sum, int rank);

// The sizes by which CallSignature tells calls apart.
std::vector<int64_t> SizesOf(const std::vector<ScatteredSum>& sums);

}  // namespace tandem
