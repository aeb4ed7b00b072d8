// The bytes inside a KV block. Per KV head, K then V, both as panels the GEMM micro-kernel reads:
//   K [head_dim words][64 tokens]: the scores of 64 tokens are one product over head_dim;
//   V [64 tokens, word-interleaved][head_dim padded to 16]: P·V is one product over tokens.
// A word is a pair of bf16 or one fp32. K's word holds two dims of one token, V's two tokens of one
// dim: storing a token writes its own elements only, so threads may store neighbours concurrently.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr int64_t kKvTokens = 64;

constexpr int64_t KvPaddedDim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

// Bytes of the K part of one head; the V part follows it.
constexpr int64_t KvKeyBytes(int64_t head_dim, int64_t element_bytes) {
  return kKvTokens * head_dim * element_bytes;
}

constexpr int64_t KvHeadBytes(int64_t head_dim, int64_t element_bytes) {
  return kKvTokens * (head_dim + KvPaddedDim(head_dim)) * element_bytes;
}

}  // namespace tandem
