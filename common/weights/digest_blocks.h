// The sums that make up a digest, over runs of whole 64-byte blocks, for several instruction sets.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// Two independent sums mod 2^64 over blocks: of block b's 16 little-endian 32-bit words w_i,
//   sum_p += Σ_j (w_2j + k_p,2j(b)) * (w_2j+1 + k_p,2j+1(b)),   j = 0..7,
// the additions mod 2^32, the products in 64 bits: NH (Black et al., UMAC, CRYPTO'99), whose keys
// differ for every word of the tensor: k_p,i(b) = start_p,i + b * step_p,i mod 2^32, steps odd.
// Sums of blocks may be added in any order.
struct BlockSums {
  uint64_t first = 0;
  uint64_t second = 0;
  void Add(const BlockSums& other) {
    first += other.first;
    second += other.second;
  }
};

struct DigestKernels {
  const char* name;
  // Blocks [index, index + blocks) of a tensor, at `data` (any alignment).
  BlockSums (*sum)(const unsigned char* data, int64_t index, int64_t blocks);
};

extern const DigestKernels kDigestAvx512, kDigestAvx2, kDigestBaseline;
// The kernels that this machine can run, fastest first; all give the same sums.
const std::vector<const DigestKernels*>& RunnableDigestKernels();

}  // namespace tandem
