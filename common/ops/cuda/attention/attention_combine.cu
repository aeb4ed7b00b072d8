// Adds the segments of a row that different blocks processed, in ascending order, with the bits
// that a single block gives (attention_forward.cu).
#include "common/ops/cuda/attention/attention_fragments.h"
#include "common/ops/cuda/attention/attention_kernels.h"

namespace tandem::attention {
namespace {

// One warp per query, kDim / 32 elements per lane.
template <int kDim>
__global__ void __launch_bounds__(kCombineWarps * 32) CombineKernel(ForwardArgs args) {
  constexpr int kEach = kDim / 32;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kCombineWarps + WarpId();
  const int kv_head = static_cast<int>(item % args.heads.kv_heads);
  const int query = static_cast<int>(item / args.heads.kv_heads % args.queries);
  const int64_t index = item / args.heads.kv_heads / args.queries;
  if (index >= args.tile_count) return;
  const QueryTile tile = args.tiles[index];
  const Group group = args.heads.group;
  if (query >= tile.queries || SegmentsTo(LastPosition(tile, group)) == 1) return;
  const int segments = SegmentsTo(PositionOf(tile, query, group));
  float max = 0.0f, total = 0.0f, sums[kEach] = {};
  for (int segment = 0; segment < segments; ++segment) {
    const int64_t slot = PartialSlot(index, kv_head, segment, query, args.heads.kv_heads,
                                     args.segments, args.queries);
    const float* const stats = args.partial_stats + slot * 2;
    const float* const next = args.partial_sums + slot * kDim + LaneId() * kEach;
    if (segment == 0) {
      max = stats[0];
      total = stats[1];
      TANDEM_UNROLL
      for (int i = 0; i < kEach; ++i) sums[i] = next[i];
      continue;
    }
    const SegmentFactors factors = FactorsOf(max, stats[0]);
    max = factors.max;
    total = AddSegment(factors, total, stats[1]);
    TANDEM_UNROLL
    for (int i = 0; i < kEach; ++i) sums[i] = AddSegment(factors, sums[i], next[i]);
  }
  const float inverse = 1.0f / total;
  const int64_t row = tile.first_row + RowOf(tile, query, group);
  const int64_t col =
      static_cast<int64_t>(kv_head * group.size + HeadOf(tile, query, group)) * kDim;
  auto* const out =
      reinterpret_cast<uint32_t*>(args.out + row * args.out_stride + col + LaneId() * kEach);
  TANDEM_UNROLL
  for (int i = 0; i < kEach; i += 2) {
    out[i / 2] = PackBf16(sums[i] * inverse + 0.0f, sums[i + 1] * inverse + 0.0f);
  }
}

}  // namespace

void CombineSegments(const ForwardArgs& args, CudaStream stream) {
  const LaunchShape shape = CombineShape(args.tile_count * args.queries * args.heads.kv_heads);
  args.heads.head_dim == 64 ? Launch(&CombineKernel<64>, shape, stream, args)
                            : Launch(&CombineKernel<128>, shape, stream, args);
}

}  // namespace tandem::attention
