// The size of a KV block, which planning (model_spec) and kernels (ops) must agree on.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr int64_t kKvBlockTokens = 64;

// Blocks that one sequence of `tokens` occupies.
constexpr int64_t KvBlocksFor(int64_t tokens) {
  return (tokens + kKvBlockTokens - 1) / kKvBlockTokens;
}

// V of a head is stored in panels of 16 dims.
constexpr int64_t KvPaddedDim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

// K and V of one head in one block.
constexpr int64_t KvHeadBytes(int64_t head_dim, int64_t element_bytes) {
  return kKvBlockTokens * (head_dim + KvPaddedDim(head_dim)) * element_bytes;
}

// One block's bytes are wanted in another as well.
struct BlockCopy {
  int32_t from = 0, to = 0;
};

}  // namespace tandem
