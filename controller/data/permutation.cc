#include "controller/data/permutation.h"

#include <bit>

#include "common/base/philox.h"

namespace tandem {
namespace {
constexpr int kRounds = 4;
}  // namespace

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch)
    : size_(size), seed_(seed), epoch_(epoch) {
  const int bits = std::bit_width(size - 1);
  half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
}

uint64_t Permutation::operator()(uint64_t index) const {
  // The domain is below four times the size, so the walk takes four steps on average at most.
  do {
    index = Encrypt(index);
  } while (index >= size_);
  return index;
}

uint64_t Permutation::Encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t word = RandomWords(seed_, epoch_, (right << 8) | round)[0];
    const uint64_t mixed = left ^ (word & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

}  // namespace tandem
