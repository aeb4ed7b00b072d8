// Sizes of the probe (controller/rollouts/parity_probe.h), which the memory plan reckons with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/memory/kv_block.h"

namespace tandem {

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

}  // namespace tandem
