// Layouts that are part of the numerics: of KV blocks and of the vocabulary. A KV block has, for
// each KV head, K then V, both in panels that the GEMM kernel reads:
//   K [64 / 16][head_dim words][16 tokens]: scores of 64 tokens are a product over head_dim;
//   V [padded head_dim / 16][64 token words][16 dims]: P·V is a product over tokens.
// A word is a pair of bf16 or one fp32. A word of K has two dims of one token, a word of V two
// tokens of one dim. Storing a token writes its own elements and, if it is the first of a unit of
// kKvValueUnit tokens, V of the whole unit; therefore one thread stores the tokens of a unit, in
// order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/memory/op_sizes.h"

namespace tandem {

inline constexpr int64_t kKvTokens = kKvBlockTokens;
// Tokens of a unit, which starts at a multiple of this number; its first token clears it, and one
// thread stores it.
inline constexpr int64_t kKvValueUnit = 32;

// Bytes of the K part of one head; the V part follows it.
constexpr int64_t KvKeyBytes(int64_t head_dim, int64_t element_bytes) {
  return kKvTokens * head_dim * element_bytes;
}

// Bytes between panels of 16 tokens in K, and of 16 dims in V.
constexpr int64_t KvKeyPanelBytes(int64_t head_dim, int64_t element_bytes) {
  return 16 * head_dim * element_bytes;
}
constexpr int64_t KvValuePanelBytes(int64_t element_bytes) {
  return kKvTokens * 16 * element_bytes;
}

// How the vocabulary is split for log-softmax and sampling. Part of the numerics.
inline constexpr int64_t kVocabChunk = 1024;

// Sampling adds a chunk's weights in groups of so many consecutive ids, then the groups. Part of
// the numerics.
inline constexpr int64_t kDrawGroup = 32;

constexpr int64_t VocabChunks(int64_t vocab_limit) {
  return (vocab_limit + kVocabChunk - 1) / kVocabChunk;
}
constexpr int64_t ChunkColumns(int64_t chunk, int64_t vocab_limit) {
  return std::min(kVocabChunk, vocab_limit - chunk * kVocabChunk);
}

}  // namespace tandem
