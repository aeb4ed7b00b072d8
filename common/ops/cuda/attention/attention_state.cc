#include "common/ops/cuda/attention/attention_state.h"

#include <algorithm>
#include <array>

#include "common/base/check.h"

namespace tandem {

namespace attention {

namespace {

// The two rows of `rope` that a key keeps, each of half_dim numbers.
std::array<const float*, 2> SampledRows(const RopeTable& rope) {
  const auto half = static_cast<size_t>(rope.half_dim);
  const size_t last = rope.sin.size() - half;
  return {rope.sin.data() + std::min(half, last), rope.sin.data() + last};
}

}  // namespace

RopeKey RopeKey::Of(const RopeTable& rope) {
  RopeKey key = {rope.cos.data(), rope.sin.data(), rope.cos.size(), rope.half_dim, {}};
  for (const float* row : SampledRows(rope)) {
    key.sample.insert(key.sample.end(), row, row + rope.half_dim);
  }
  return key;
}

bool RopeKey::Is(const RopeTable& rope) const {
  if (cos != rope.cos.data() || sin != rope.sin.data() || size != rope.cos.size() ||
      half_dim != rope.half_dim) {
    return false;
  }
  const auto rows = SampledRows(rope);
  const auto middle = sample.begin() + half_dim;
  return std::equal(sample.begin(), middle, rows[0]) && std::equal(middle, sample.end(), rows[1]);
}

}  // namespace attention

CudaAttention::State::Forward& CudaAttention::State::SlotOf(const std::vector<AttentionSpan>& spans,
                                                            int64_t group,
                                                            bool* same) {
  Forward* oldest = forwards.data();
  for (Forward& forward : forwards) {
    *same = forward.asked > 0 && forward.group == group && forward.spans.Equals(spans);
    if (*same) return forward;
    if (forward.asked < oldest->asked) oldest = &forward;
  }
  return *oldest;
}

const CudaAttention::State::Forward& CudaAttention::State::PlanOf(
    CudaContext& context,
    const std::vector<AttentionSpan>& spans,
    const attention::Heads& heads,
    const KvLayer& kv) {
  // All layers of a step have the same spans (ForwardOps::BeginStep): they are compared once, not
  // twice a layer, while the device waits for the step.
  bool same = context.in_graph() && forwards[newest].epoch == context.upload_epoch();
  Forward& forward = same ? forwards[newest] : SlotOf(spans, heads.group.size, &same);
  forward.asked = ++questions;
  newest = static_cast<size_t>(&forward - forwards.data());
  if (!same) {
    forward.spans.Keep(spans);
    forward.group = heads.group.size;
    forward.plan = attention::PlanForward(spans, heads.group.size);
  }
  const attention::ForwardPlan& plan = forward.plan;
  TANDEM_CHECK(plan.min_block >= 0 && plan.max_block < kv.num_blocks, "KV block outside the pool");
  if (!same || forward.epoch != context.upload_epoch()) {
    forward.epoch = context.upload_epoch();
    forward.few = context.Upload(plan.few);
    forward.many = context.Upload(plan.many);
    forward.tables = context.Upload(plan.tables);
    forward.rows = context.Upload(plan.rows);
  }
  return forward;
}

const CudaAttention::State::Backward& CudaAttention::State::BackwardPlanOf(
    CudaContext& context, const std::vector<AttentionSpan>& spans, const attention::Heads& heads) {
  const bool same = backward.group == heads.group.size && backward.spans.Equals(spans);
  if (!same) {
    backward.spans.Keep(spans);
    backward.group = heads.group.size;
    backward.plan = attention::PlanBackward(spans, heads.group.size);
  }
  if (!same || backward.epoch != context.upload_epoch()) {
    backward.epoch = context.upload_epoch();
    backward.device_spans = context.Upload(backward.plan.spans);
    backward.tiles = context.Upload(backward.plan.tiles);
    backward.key_tiles = context.Upload(backward.plan.key_tiles);
    backward.viewers = context.Upload(backward.plan.viewers);
    backward.shared_tiles = context.Upload(backward.plan.shared_tiles);
    backward.rows = context.Upload(backward.plan.rows);
  }
  return backward;
}

void CudaAttention::State::FreeRope(CudaContext& context) {
  if (rope_memory == nullptr) return;
  // Kernels that read it may be under way, and graphs know its address.
  context.DropGraphs();
  context.Keep(context.Synchronize());
  context.Keep(context.GiveBack(rope_memory, rope_bytes));
  rope_memory = nullptr;
  rope_bytes = 0;
}

const float* CudaAttention::State::DeviceRope(CudaContext& context, const RopeTable& table) {
  const auto count = static_cast<int64_t>(table.cos.size());
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  if (!rope.Is(table)) {
    if (!context.eager()) {
      // A graph would copy from where the table lies now each time it is launched.
      TANDEM_CHECK(rope_bytes == 2 * bytes, "a graph's step has a rope table of another size");
      context.RefuseGraph();
      return reinterpret_cast<const float*>(rope_memory);
    }
    // Not scratch: forward and backward have objects of their own on one context, and what one
    // copied must not be what the other reads.
    if (rope_bytes != 2 * bytes) {
      FreeRope(context);
      rope = attention::RopeKey();
      rope_memory = context.Allocate("the rope table", 2 * bytes);
      if (rope_memory == nullptr) return nullptr;
      rope_bytes = 2 * bytes;
    }
    if (context.failed()) return nullptr;
    context.Copy(rope_memory, table.cos.data(), bytes);
    context.Copy(rope_memory + bytes, table.sin.data(), bytes);
    rope = attention::RopeKey::Of(table);
  }
  return reinterpret_cast<const float*>(rope_memory);
}

}  // namespace tandem
