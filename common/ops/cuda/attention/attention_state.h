// What CudaAttention keeps between calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/device/cuda/cuda_context.h"
#include "common/ops/cuda/attention/attention.h"
#include "common/ops/cuda/attention/attention_kernels.h"
#include "common/ops/cuda/attention/attention_plan.h"

namespace tandem {

namespace attention {

// What tells one rope table from another without reading all of it: where it lies, its size, and
// two rows, since memory is used again.
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

// Plans are uploaded when the spans change, and again when what was uploaded may be gone.
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
