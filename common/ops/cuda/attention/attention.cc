#include "common/ops/cuda/attention/attention.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/device/cuda/cuda_context.h"
#include "common/ops/cuda/attention/attention_kernels.h"
#include "common/ops/cuda/attention/attention_plan.h"

namespace tandem {
namespace {

using attention::BackwardPlan;
using attention::ForwardPlan;

attention::Heads HeadsOf(const AttentionShape& shape) {
  const absl::Status status = CudaAttention::CheckShape(shape);
  TANDEM_CHECK(status.ok(), std::string(status.message()));
  return {static_cast<int>(shape.heads), static_cast<int>(shape.kv_heads),
          static_cast<int>(shape.head_dim), attention::Group::Of(shape.heads / shape.kv_heads)};
}

Bf16* Data(const Matrix& matrix) { return static_cast<Bf16*>(matrix.data); }

double ScoreScale(const AttentionShape& shape) {
  return 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
}
float ScaleLog2(const AttentionShape& shape) {
  return static_cast<float>(ScoreScale(shape) * 1.4426950408889634);
}

void CheckPositions(const RopeTable& rope, int64_t last_position) {
  TANDEM_CHECK(last_position * rope.half_dim < static_cast<int64_t>(rope.cos.size()),
               "position beyond the rope table");
}

}  // namespace

absl::Status CudaAttention::CheckShape(const AttentionShape& shape) {
  if (shape.head_dim != 64 && shape.head_dim != 128) {
    return absl::InvalidArgumentError(
        fmt::format("attention on a GPU: head_dim {}: the kernels know 64 and 128; run this model "
                    "with trainer.device=cpu",
                    shape.head_dim));
  }
  if (shape.kv_heads <= 0 || shape.heads <= 0 || shape.heads % shape.kv_heads != 0) {
    return absl::InvalidArgumentError(
        fmt::format("attention on a GPU: {} query heads cannot share {} kv heads evenly; correct "
                    "the model's config",
                    shape.heads, shape.kv_heads));
  }
  return absl::OkStatus();
}

CudaAttention::CudaAttention(CudaContext* context)
    : context_(context), state_(std::make_unique<State>()) {}
CudaAttention::~CudaAttention() { state_->FreeRope(*context_); }

float* CudaAttention::FloatScratch(int slot, int64_t bytes) {
  return reinterpret_cast<float*>(context_->Scratch(slot, bytes));
}

void CudaAttention::RopeAndStore(Matrix qkv,
                                 const AttentionShape& shape,
                                 const RopeTable& rope,
                                 const std::vector<AttentionSpan>& spans,
                                 KvLayer kv) {
  attention::RopeArgs args;
  args.heads = HeadsOf(shape);
  args.cos = state_->DeviceRope(*context_, rope);
  if (args.cos == nullptr) return;
  args.sin = args.cos + rope.cos.size();
  const State::Forward& plan = state_->PlanOf(*context_, spans, args.heads, kv);
  CheckPositions(rope, plan.plan.last_position);
  args.x = Data(qkv);
  args.stride = qkv.stride;
  args.rows = plan.rows;
  args.row_count = static_cast<int64_t>(plan.plan.rows.size());
  args.kv = reinterpret_cast<unsigned char*>(kv.base);
  args.block_bytes = KvBlockBytes(shape, DType::kBFloat16);
  if (args.row_count > 0 && context_->launching()) {
    attention::RotateAndStore(args, context_->stream());
  }
}

void CudaAttention::Forward(Matrix qkv,
                            const AttentionShape& shape,
                            const std::vector<AttentionSpan>& spans,
                            KvLayer kv,
                            Matrix out) {
  attention::ForwardArgs args;
  args.heads = HeadsOf(shape);
  const State::Forward& on_device = state_->PlanOf(*context_, spans, args.heads, kv);
  const ForwardPlan& plan = on_device.plan;
  args.qkv = Data(qkv);
  args.qkv_stride = qkv.stride;
  args.out = Data(out);
  args.out_stride = out.stride;
  args.kv = reinterpret_cast<const unsigned char*>(kv.base);
  args.block_bytes = KvBlockBytes(shape, DType::kBFloat16);
  args.scale_log2 = ScaleLog2(shape);
  args.tables = on_device.tables;
  if (!plan.many.empty()) {
    args.tiles = on_device.many;
    args.tile_count = static_cast<int64_t>(plan.many.size());
    if (context_->launching()) {
      attention::ForwardTiles(args, attention::kManyWarps, context_->stream());
    }
  }
  if (plan.few.empty()) return;
  args.tiles = on_device.few;
  args.tile_count = static_cast<int64_t>(plan.few.size());
  args.queries = plan.few_queries;
  args.segments = static_cast<int>(
      attention::SegmentsSideBySide(args.tile_count, shape.kv_heads, plan.segment_bound));
  if (args.segments > 1) {
    const int64_t slots = args.tile_count * shape.kv_heads * args.segments * args.queries;
    args.partial_sums = FloatScratch(kPartialsSlot, SegmentPartialsBytes(slots, shape.head_dim));
    args.partial_stats = args.partial_sums + slots * shape.head_dim;
  }
  if (!context_->launching()) return;
  attention::ForwardTiles(args, 1, context_->stream());
  if (args.segments > 1) attention::CombineSegments(args, context_->stream());
}

void CudaAttention::Backward(Matrix qkv,
                             const AttentionShape& shape,
                             const std::vector<AttentionSpan>& spans,
                             Matrix out,
                             Matrix dout,
                             Matrix dqkv) {
  attention::BackwardArgs args;
  args.heads = HeadsOf(shape);
  const State::Backward& on_device = state_->BackwardPlanOf(*context_, spans, args.heads);
  const BackwardPlan& plan = on_device.plan;
  TANDEM_CHECK(plan.prefixes_found,
               "attention's backward needs the rows of a span's prefix in an earlier span");
  if (plan.tiles.empty()) return;
  args.qkv = Data(qkv);
  args.qkv_stride = qkv.stride;
  args.out = Data(out);
  args.out_stride = out.stride;
  args.dout = Data(dout);
  args.dout_stride = dout.stride;
  args.dqkv = Data(dqkv);
  args.dqkv_stride = dqkv.stride;
  args.scale = static_cast<float>(ScoreScale(shape));
  args.scale_log2 = ScaleLog2(shape);
  args.spans = on_device.device_spans;
  args.tiles = on_device.tiles;
  args.tile_count = static_cast<int64_t>(plan.tiles.size());
  args.key_tiles = on_device.key_tiles;
  args.key_tile_count = static_cast<int64_t>(plan.key_tiles.size());
  args.viewers = on_device.viewers;
  args.shared_tiles = on_device.shared_tiles;
  args.shared_tile_count = static_cast<int64_t>(plan.shared_tiles.size());
  args.parts =
      FloatScratch(kPartialsSlot, KeyPartsBytes(plan.parts, shape.kv_heads, args.heads.head_dim));
  args.slots = plan.slots;
  args.log_sums = FloatScratch(kStatsSlot, QueryStatsBytes(plan.slots, shape.kv_heads));
  args.deltas = args.log_sums + shape.kv_heads * plan.slots;
  if (!context_->launching()) return;
  attention::QueryGradients(args, context_->stream());
  attention::KeyGradients(args, context_->stream());
}

void CudaAttention::Rope(Matrix dqkv,
                         const AttentionShape& shape,
                         const RopeTable& rope,
                         const std::vector<AttentionSpan>& spans) {
  attention::RopeArgs args;
  args.heads = HeadsOf(shape);
  args.cos = state_->DeviceRope(*context_, rope);
  if (args.cos == nullptr) return;
  args.sin = args.cos + rope.cos.size();
  const State::Backward& plan = state_->BackwardPlanOf(*context_, spans, args.heads);
  CheckPositions(rope, plan.plan.last_position);
  args.x = Data(dqkv);
  args.stride = dqkv.stride;
  args.rows = plan.rows;
  args.row_count = static_cast<int64_t>(plan.plan.rows.size());
  if (args.row_count > 0 && context_->launching()) {
    attention::RotateBack(args, context_->stream());
  }
}

}  // namespace tandem
