// How the vocabulary is cut for log-softmax and sampling. Part of the numerics.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem {

inline constexpr int64_t kVocabChunk = 1024;

constexpr int64_t VocabChunks(int64_t vocab_limit) {
  return (vocab_limit + kVocabChunk - 1) / kVocabChunk;
}
constexpr int64_t ChunkColumns(int64_t chunk, int64_t vocab_limit) {
  return std::min(kVocabChunk, vocab_limit - chunk * kVocabChunk);
}

}  // namespace tandem
