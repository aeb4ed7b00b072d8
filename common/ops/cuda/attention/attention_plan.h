// Cuts the spans of an attention call into the work of blocks of threads, on the host.
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

// Whether the plan of some spans is one of others as well: equal numbers and block ids, at
// whichever addresses. Keeps copies, as spans point to block tables that do not last.
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

// Tells one rope table from another without reading all of it: by address, size, and two rows,
// since memory is used again.
struct RopeKey {
  const float *cos = nullptr, *sin = nullptr;
  size_t size = 0;
  int64_t half_dim = 0;
  std::vector<float> sample;

  static RopeKey Of(const RopeTable& rope);
  // Whether it is this table's; asked in every layer, allocates nothing.
  bool Is(const RopeTable& rope) const;
};

}  // namespace attention

// Plans are uploaded when the spans change, and again when an upload may be gone.
struct CudaAttention::State {
  struct Forward {
    attention::SpanContents spans;
    int64_t group = 0, epoch = -1;
    int64_t asked = 0;  // by which question it was used last; 0: holds nothing
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

  // A layer of a pass with shared prompts asks for three span lists: those whose keys are stored
  // first, those that go on from them, and all for attention.
  static constexpr size_t kForwardPlans = 3;

  const Forward& PlanOf(CudaContext& context,
                        const std::vector<AttentionSpan>& spans,
                        const attention::Heads& heads,
                        const KvLayer& kv);
  const Backward& BackwardPlanOf(CudaContext& context,
                                 const std::vector<AttentionSpan>& spans,
                                 const attention::Heads& heads);
  // cos, and behind it sin. To be asked before a plan: it may wait for the device, which ends
  // uploads. Another table than before refuses the graph that is open. Null where there is no
  // memory for it, which the context then tells.
  const float* DeviceRope(CudaContext& context, const RopeTable& rope);

  void FreeRope(CudaContext& context);
  // The plan of these spans, or the one to be made anew for them: that used longest ago.
  Forward& SlotOf(const std::vector<AttentionSpan>& spans, int64_t group, bool* same);

  std::array<Forward, kForwardPlans> forwards;
  size_t newest = 0;  // of forwards, asked for last
  int64_t questions = 0;
  Backward backward;
  attention::RopeKey rope;
  std::byte* rope_memory = nullptr;
  int64_t rope_bytes = 0;
};

}  // namespace tandem
