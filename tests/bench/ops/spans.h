// Sequences of equal length and what attention reads and writes of them.
#pragma once

#include <vector>

#include "tests/bench/ops/shapes.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem::bench {

// The last `rows` of `context` positions of each of `sequences`.
struct Spans {
  Spans(int64_t sequences, int64_t rows, int64_t context)
      : kv(kAttention, kBf16, sequences * (context / kKvBlockTokens + 1), 1),
        qkv(testing::TestMatrix::Random(kBf16, sequences * rows, kAttention.qkv_cols(), 2)),
        out(kBf16, sequences * rows, kAttention.q_cols()) {
    for (int64_t i = 0; i < sequences; ++i) blocks.push_back(kv.Take(context));
    for (int64_t i = 0; i < sequences; ++i) {
      spans.push_back({i * rows, rows, context - rows, blocks[static_cast<size_t>(i)].data()});
    }
  }
  RopeTable rope = testing::TestRope(kAttention.head_dim, 2048);
  testing::TestKv kv;
  testing::TestMatrix qkv, out;
  std::vector<std::vector<int32_t>> blocks;
  std::vector<AttentionSpan> spans;
};

}  // namespace tandem::bench
