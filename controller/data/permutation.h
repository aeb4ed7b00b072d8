// A seeded permutation of 0..n-1 that needs no table: any element is computed on its own, so that a
// run resumes in the middle of an epoch at once.
#pragma once

#include <cstdint>

namespace tandem {

// Four-round Feistel network on Philox words over the next even power of two, with cycle walking
// (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
class Permutation {
 public:
  // `size` > 0. Distinct (seed, epoch) give unrelated orders.
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);

  // The image of `index` < size: a bijection of 0..size-1.
  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t Encrypt(uint64_t value) const;

  uint64_t size_, seed_, epoch_;
  int half_bits_;
};

}  // namespace tandem
