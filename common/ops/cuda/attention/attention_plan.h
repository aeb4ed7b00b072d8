// Divides the spans of an attention call into work for blocks of threads, on the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/device/cuda/cuda_context.h"
#include "common/ops/cuda/attention/attention.h"
#include "common/ops/cuda/attention/attention_kernels.h"
#include "common/ops/cuda/attention/attention_layout.h"
#include "common/ops/ops_types.h"

namespace tandem::attention {

// The plan of RopeAndStore and Forward. If all spans have one row, the sizes of its arrays depend
// only on the number of spans and `segment_bound`.
struct ForwardPlan {
  int64_t segment_bound = 1;         // AttentionSegmentBound of the spans
  std::vector<QueryTile> few, many;  // tiles of one warp, and of kManyWarps, longest first
  int few_queries = 0;               // of the largest tile in `few`
  std::vector<int32_t> tables;       // block ids, kSegmentTiles * segment_bound for each span
  std::vector<RowPlace> rows;        // in the order of the spans
  int64_t last_position = -1;        // of all rows
  int32_t min_block = 0, max_block = -1;
};
ForwardPlan PlanForward(const std::vector<AttentionSpan>& spans, int64_t group);

// The plan of Backward and Rope. Spans need no blocks.
struct BackwardPlan {
  std::vector<BackwardSpan> spans;
  std::vector<BackwardTile> tiles;  // tiles with the most keys first
  std::vector<KeyTile> key_tiles;   // tiles seen by the most queries first
  std::vector<int32_t> viewers;
  std::vector<SharedKeyTile> shared_tiles;
  int64_t parts = 0;
  int64_t slots = 0;           // of statistics for each KV head
  std::vector<RowPlace> rows;  // blocks are 0
  int64_t last_position = -1;
  // Whether each span that does not begin at 0 names a prefix in an earlier span; Backward requires
  // it, Rope does not.
  bool prefixes_found = true;
};
BackwardPlan PlanBackward(const std::vector<AttentionSpan>& spans, int64_t group);

// Tells whether a plan fits other spans too: they have equal numbers and block ids, at any address.
// Keeps copies, because spans point to block tables that do not last.
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

namespace tandem {

// What CudaAttention keeps between calls.

namespace attention {

// Distinguishes rope tables without reading them completely: by address, size and two rows, as an
// address may be used again.
struct RopeKey {
  const float *cos = nullptr, *sin = nullptr;
  size_t size = 0;
  int64_t half_dim = 0;
  std::vector<float> sample;

  static RopeKey Of(const RopeTable& rope);
  // Whether the key is that of this table. Called in every layer; allocates nothing.
  bool Is(const RopeTable& rope) const;
};

}  // namespace attention

// Plans are uploaded when the spans change, and again if an upload may have been overwritten.
struct CudaAttention::State {
  struct Forward {
    attention::SpanContents spans;
    int64_t group = 0, epoch = -1;
    int64_t asked = 0;  // number of the request that used it last; 0: it holds nothing
    attention::ForwardPlan plan;
    // On the device.
    const attention::QueryTile *few = nullptr, *many = nullptr;
    const int32_t* tables = nullptr;
    const attention::RowPlace* rows = nullptr;
  };

  struct Backward {
    attention::SpanContents spans;
    int64_t group = 0, epoch = -1;
    attention::BackwardPlan plan;
    // On the device.
    const attention::BackwardSpan* device_spans = nullptr;
    const attention::BackwardTile* tiles = nullptr;
    const attention::KeyTile* key_tiles = nullptr;
    const int32_t* viewers = nullptr;
    const attention::SharedKeyTile* shared_tiles = nullptr;
    const attention::RowPlace* rows = nullptr;
  };

  // A layer of a pass with shared prompts uses three lists of spans: those whose keys are stored
  // first, those that continue them, and all spans for attention.
  static constexpr size_t kForwardPlans = 3;

  const Forward& PlanOf(CudaContext& context,
                        const std::vector<AttentionSpan>& spans,
                        const attention::Heads& heads,
                        const KvLayer& kv);
  const Backward& BackwardPlanOf(CudaContext& context,
                                 const std::vector<AttentionSpan>& spans,
                                 const attention::Heads& heads);
  // The table on the device: cos, followed by sin. Call it before a plan is uploaded: it may wait
  // for the device, which ends uploads. If the table has changed, the open graph is refused. Null
  // if there is no memory; the context then returns the error.
  const float* DeviceRope(CudaContext& context, const RopeTable& rope);

  void FreeRope(CudaContext& context);
  // The slot that holds the plan of these spans, or the least recently used one, in which the
  // caller makes it.
  Forward& SlotOf(const std::vector<AttentionSpan>& spans, int64_t group, bool* same);

  std::array<Forward, kForwardPlans> forwards;
  size_t newest = 0;  // index of the forward plan that was requested last
  int64_t questions = 0;
  Backward backward;
  attention::RopeKey rope;
  std::byte* rope_memory = nullptr;
  int64_t rope_bytes = 0;
};

}  // namespace tandem
