// The keys of the digest's two sums (digest_blocks.h), for every processor that computes them.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr int kDigestSums = 2;
inline constexpr int kDigestWords = 16;  // of 32 bits in a block

// For each sum: the keys of block 0, and their increments from block to block.
struct DigestKeys {
  uint32_t start[kDigestSums][kDigestWords];
  uint32_t step[kDigestSums][kDigestWords];
};

// Numbers of splitmix64, seeded by the fractional part of the square root of 2 so that no
// choice is hidden in them.
constexpr DigestKeys MakeDigestKeys() {
  DigestKeys keys{};
  uint64_t state = 0x6A09E667F3BCC909u;
  for (int sum = 0; sum < kDigestSums; ++sum) {
    for (int i = 0; i < 2 * kDigestWords; ++i) {
      uint64_t z = (state += 0x9E3779B97F4A7C15u);
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      const auto word = static_cast<uint32_t>((z ^ (z >> 31)) >> 32);
      (i % 2 == 0 ? keys.start[sum][i / 2] : keys.step[sum][i / 2]) = word | (i % 2);
    }
  }
  return keys;
}

alignas(64) inline constexpr DigestKeys kDigestKeys = MakeDigestKeys();

}  // namespace tandem
