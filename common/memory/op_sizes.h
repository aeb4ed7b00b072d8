// Sizes on which the memory plan and the ops or workers must agree: of KV blocks, of the probe and
// of packed weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

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

// The bytes of block `from` are copied to block `to`.
struct BlockCopy {
  int32_t from = 0, to = 0;
};

// Sizes of the probe (controller/rollouts/parity_probe.h), which the memory plan includes.
inline constexpr int64_t kProbeResponseTokens = 4;
// The longest sequence of the probe: eight KV blocks. A longer one would cost more in every step
// than its further positions are likely to reveal.
inline constexpr int64_t kProbeLongest = 8 * kKvBlockTokens;

// Tokens, prompt and response, of each sequence of the probe, ascending and at least one, if a
// rollout and a micro-batch hold `max_tokens` (>= 2): one sequence that ends inside its first KV
// block, one that decodes across the end of that block, and one that is as long as they allow. Each
// rollout generates these sequences, and each trainer scores those of its rollout at once, never
// more.
inline std::vector<int64_t> ProbeSequences(int64_t max_tokens) {
  const int64_t longest = std::min(max_tokens, kProbeLongest);
  std::vector<int64_t> sequences;
  for (const int64_t tokens : {20 + kProbeResponseTokens, kKvBlockTokens + 2}) {
    if (tokens < longest) sequences.push_back(tokens);
  }
  sequences.push_back(longest);
  return sequences;
}

// The size of a packed weight (common/ops/cpu/packed_weight.h).

// The format of a storage's linear weights, which the ops that read them determine: panels for a
// CPU's kernels, dense row-major [rows, cols] for a GPU's.
enum class WeightFormat { kPanels, kRowMajor };

// Rows of a panel. Ranges that begin at a panel and span whole panels are copied fastest.
inline constexpr int64_t kPackedPanelRows = 16;

// Bytes of a packed [rows, cols] weight: panels of 16 rows; bf16 columns are rounded up to 32.
constexpr int64_t PackedWeightBytes(int64_t rows, int64_t cols, int64_t element_bytes) {
  const int64_t padded_cols = element_bytes == 2 ? (cols + 31) / 32 * 32 : cols;
  return (rows + kPackedPanelRows - 1) / kPackedPanelRows * kPackedPanelRows * padded_cols *
         element_bytes;
}

}  // namespace tandem
