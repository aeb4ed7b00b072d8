// How the spans of an attention call are cut into what blocks of threads do, on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ops/cuda/attention/attention_backward_layout.h"
#include "common/ops/cuda/attention/attention_layout.h"
#include "common/ops/ops_types.h"

namespace tandem::attention {

// Of RopeAndStore and Forward. Where all spans are of one row each, the sizes of its arrays depend
// on the number of spans and `segment_bound` alone.
struct ForwardPlan {
  int64_t segment_bound = 1;         // AttentionSegmentBound of the spans
  std::vector<QueryTile> few, many;  // tiles of one warp, and of kManyWarps, longest first
  int few_queries = 0;               // of the largest tile of `few`
  std::vector<int32_t> tables;       // block ids, kSegmentTiles * segment_bound of each span
  std::vector<RowPlace> rows;        // in the order of the spans
  int64_t last_position = -1;        // of all rows
  int32_t min_block = 0, max_block = -1;
};
ForwardPlan PlanForward(const std::vector<AttentionSpan>& spans, int64_t group);

// Of Backward and Rope. Spans need no blocks.
struct BackwardPlan {
  std::vector<BackwardSpan> spans;
  std::vector<BackwardTile> tiles;  // those over most keys first
  std::vector<KeyTile> key_tiles;   // those seen by most queries first
  std::vector<int32_t> viewers;
  std::vector<SharedKeyTile> shared_tiles;
  int64_t parts = 0;
  int64_t slots = 0;           // of statistics of a KV head
  std::vector<RowPlace> rows;  // blocks are 0
  int64_t last_position = -1;
  // Whether each span that does not begin at 0 names a prefix in an earlier one, as Backward needs;
  // Rope does not.
  bool prefixes_found = true;
};
BackwardPlan PlanBackward(const std::vector<AttentionSpan>& spans, int64_t group);

// Whether the plan of `a` is one of `b` as well: equal numbers and block ids, wherever they lie.
// Keeps what it compares with, as spans point to blocks that do not last.
class SpanContents {
 public:
  void Keep(const std::vector<AttentionSpan>& spans);
  bool Equals(const std::vector<AttentionSpan>& spans) const;

 private:
  std::vector<AttentionSpan> spans_;
  std::vector<int32_t> blocks_;  // of all spans
  bool kept_ = false;
};

}  // namespace tandem::attention
