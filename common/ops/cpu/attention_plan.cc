#include "common/ops/cpu/attention_plan.h"

#include <algorithm>

#include "common/ops/numerics_layout.h"

namespace tandem {
namespace {
// Queries of one KV head in a group: complete row tiles if 1, 2, 3 or 4 heads share it, enough to
// use K and V many times while they are in L1, and few enough for the scores of a long context to
// stay in L2.
constexpr int64_t kQueries = 48;
constexpr int64_t kAttentionTasksPerThread = 4;

// The number of blocks with equal ids with which both sequences begin and that both have filled.
int64_t SharedTiles(const AttentionSpan& a, const AttentionSpan& b) {
  const int64_t most = (std::min(a.first_position, b.first_position) + 1) / kKvTokens;
  int64_t tiles = 0;
  while (tiles < most && a.blocks[tiles] == b.blocks[tiles]) ++tiles;
  return tiles;
}

}  // namespace

void AttentionPlan::Plan(const std::vector<AttentionSpan>& spans,
                         const AttentionShape& shape,
                         int threads) {
  rows_.clear();
  groups_.clear();
  decode_.clear();
  const int64_t rows = std::max(kQueries / (shape.heads / shape.kv_heads), int64_t{1});
  for (const AttentionSpan& span : spans) {
    if (span.rows == 1) {
      decode_.push_back(&span);
    } else {
      AddRuns(span, rows);
    }
  }
  const int64_t tasks = static_cast<int64_t>(decode_.size()) * shape.kv_heads;
  AddDecodeRows(std::clamp(tasks / (threads * kAttentionTasksPerThread), int64_t{1}, rows));
}

void AttentionPlan::AddRuns(const AttentionSpan& span, int64_t rows) {
  for (int64_t first = 0; first < span.rows; first += rows) {
    const AttentionRows run = {span.first_row + first, std::min(span.rows - first, rows),
                               span.first_position + first, span.blocks};
    groups_.push_back({rows_.size(), 1, KvBlocksFor(run.first_position + run.rows)});
    rows_.push_back(run);
  }
}

void AttentionPlan::AddDecodeRows(int64_t most) {
  std::sort(decode_.begin(), decode_.end(), [](const AttentionSpan* a, const AttentionSpan* b) {
    return a->blocks[0] != b->blocks[0] ? a->blocks[0] < b->blocks[0] : a->first_row < b->first_row;
  });
  for (size_t first = 0; first < decode_.size();) {
    const AttentionSpan& leader = *decode_[first];
    AddRuns(leader, 1);
    Group& group = groups_.back();
    for (++first; first < decode_.size() && group.count < most; ++first, ++group.count) {
      const AttentionSpan& span = *decode_[first];
      const int64_t shared = std::min(group.shared_tiles, SharedTiles(leader, span));
      if (shared == 0) break;
      group.shared_tiles = shared;
      rows_.push_back({span.first_row, 1, span.first_position, span.blocks});
    }
  }
}

AttentionTask AttentionPlan::Task(int64_t group, int64_t kv_head) const {
  const Group& from = groups_[static_cast<size_t>(group)];
  return {rows_.data() + from.first, from.count, from.shared_tiles, kv_head};
}

}  // namespace tandem
