// Counter-based random numbers (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC'11, Philox4x32-10): a value is a pure function of key and counter, so that a token sampled for
// (seed, sample, position) does not depend on batch, replica, preemption or resume.
#pragma once

#include <array>
#include <cstdint>

namespace tandem {

// Ten rounds; `counter` and `key` as in the paper's philox4x32.
constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Four random words for (seed, stream, index).
constexpr std::array<uint32_t, 4> RandomWords(uint64_t seed, uint64_t stream, uint64_t index) {
  return Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                     static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

// A uniform in (0, 1) with 23 bits: (k + 0.5) / 2^23 is exact in fp32 and never reaches 0 or 1.
constexpr float RandomUniform(uint64_t seed, uint64_t stream, uint64_t index) {
  const uint32_t bits = RandomWords(seed, stream, index)[0] >> 9;
  return (static_cast<float>(bits) + 0.5f) * 0x1p-23f;
}

// A uniform in (0, 1) with 52 bits, the first 23 of them those of RandomUniform: (k + 0.5) / 2^52
// is exact in a double and never reaches 0 or 1.
constexpr double RandomUniform52(uint64_t seed, uint64_t stream, uint64_t index) {
  const std::array<uint32_t, 4> words = RandomWords(seed, stream, index);
  const uint64_t bits = (uint64_t{words[0]} << 20) | (words[1] >> 12);
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

}  // namespace tandem
