// The size of a KV block, which planning (model_spec) and kernels (ops) must agree on.
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

// One block's bytes are wanted in another as well.
struct BlockCopy {
  int32_t from = 0, to = 0;
};

// Sizes of the probe (controller/rollouts/parity_probe.h), which the memory plan reckons with.
inline constexpr int64_t kProbeResponseTokens = 4;
// The longest sequence of the probe: eight KV blocks. A longer one costs more in every step than
// the positions behind it are likely to tell.
inline constexpr int64_t kProbeLongest = 8 * kKvBlockTokens;

// Tokens, prompt and response, of each sequence of the probe, ascending and at least one, where a
// rollout and a micro-batch hold `max_tokens` (>= 2): one that ends inside its first KV block, one
// that decodes across the end of it, and one that is as long as they allow. Each rollout makes
// these sequences, and each trainer scores those of its rollout in one go: never more at a time.
inline std::vector<int64_t> ProbeSequences(int64_t max_tokens) {
  const int64_t longest = std::min(max_tokens, kProbeLongest);
  std::vector<int64_t> sequences;
  for (const int64_t tokens : {20 + kProbeResponseTokens, kKvBlockTokens + 2}) {
    if (tokens < longest) sequences.push_back(tokens);
  }
  sequences.push_back(longest);
  return sequences;
}

// The size of a packed weight (common/ops/cpu/packed_weight.h), which planning and kernels must
// agree on.

// The format of a storage's linear weights, which the ops that read them decide: in panels for a
// CPU's kernels, dense row-major [rows, cols] for a GPU's.
enum class WeightFormat { kPanels, kRowMajor };

// Rows of a panel. Ranges that begin on one and span whole panels move fastest.
inline constexpr int64_t kPackedPanelRows = 16;

// Bytes of a packed [rows, cols] weight: panels of 16 rows; bf16 columns are rounded up to 32.
constexpr int64_t PackedWeightBytes(int64_t rows, int64_t cols, int64_t element_bytes) {
  const int64_t padded_cols = element_bytes == 2 ? (cols + 31) / 32 * 32 : cols;
  return (rows + kPackedPanelRows - 1) / kPackedPanelRows * kPackedPanelRows * padded_cols *
         element_bytes;
}

}  // namespace tandem
