// dq of attention: a block takes 64 queries of one KV head over tiles of 64 keys, ascending, as the
// forward does, in one pass: weights relative to the maximum so far, sums multiplied when it grows,
// and divided by the total in the end. Leaves each query's log-sum-exp and dout · out for dk and
// dv.
// tensor cores: QueryKernel
#include "common/ops/cuda/attention/attention_fragments.h"
#include "common/ops/cuda/attention/attention_kernels.h"

namespace tandem::attention {
namespace {

constexpr int kThreads = kManyWarps * 32;

template <int kDim>
struct Buffers {
  static constexpr int kTile = kTileKeys * kDim;  // elements
  uint16_t* memory;

  __device__ __forceinline__ uint16_t* Queries() const { return memory; }
  __device__ __forceinline__ uint16_t* Douts() const { return memory + kTile; }
  __device__ __forceinline__ uint16_t* Keys(int buffer) const {
    return memory + (2 + buffer) * kTile;
  }
  __device__ __forceinline__ uint16_t* Values(int buffer) const {
    return memory + (4 + buffer) * kTile;
  }
  __device__ __forceinline__ float* Deltas() const {  // [64]
    return reinterpret_cast<float*>(memory + 6 * kTile);
  }
};

// The block's queries.
struct Block {
  BackwardSpan span;
  Group group;
  int first_query, queries, kv_head;

  __device__ __forceinline__ int Clamped(int query) const {
    return first_query + (query < queries ? query : queries - 1);
  }
  __device__ __forceinline__ int64_t Row(int query) const {
    return span.first_row + group.Divide(Clamped(query));
  }
  __device__ __forceinline__ int Position(int query) const {
    return span.first_position + group.Divide(Clamped(query));
  }
  __device__ __forceinline__ int64_t Head(int query) const {
    const int at = Clamped(query);
    return kv_head * group.size + at - group.Divide(at) * group.size;
  }
};

template <int kDim>
__device__ __forceinline__ void CopyQueries(const BackwardArgs& args,
                                            const Block& block,
                                            const Buffers<kDim>& buffers) {
  for (int i = static_cast<int>(threadIdx.x); i < kBackwardQueries * (kDim / 8); i += kThreads) {
    const int query = i / (kDim / 8), chunk = i % (kDim / 8);
    const bool valid = query < block.queries;
    const int64_t row = block.Row(query), col = block.Head(query) * kDim + chunk * 8;
    CopyAsync16(ChunkAt<kDim>(buffers.Queries(), query, chunk),
                args.qkv + row * args.qkv_stride + col, valid);
    CopyAsync16(ChunkAt<kDim>(buffers.Douts(), query, chunk),
                args.dout + row * args.dout_stride + col, valid);
  }
}

template <int kDim>
__device__ __forceinline__ void CopyKeyTile(const BackwardArgs& args,
                                            const Block& block,
                                            int first_position,
                                            int last,
                                            uint16_t* keys,
                                            uint16_t* values) {
  const int64_t k_col = static_cast<int64_t>(args.heads.heads + block.kv_head) * kDim;
  const int64_t v_offset = static_cast<int64_t>(args.heads.kv_heads) * kDim;
  for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * (kDim / 8); i += kThreads) {
    const int key = i / (kDim / 8), chunk = i % (kDim / 8), position = first_position + key;
    const bool valid = position <= last;
    const int64_t row = RowOfKey(block.span, valid ? position : last);
    const uint16_t* const from = args.qkv + row * args.qkv_stride + k_col + chunk * 8;
    CopyAsync16(ChunkAt<kDim>(keys, key, chunk), from, valid);
    CopyAsync16(ChunkAt<kDim>(values, key, chunk), from + v_offset, valid);
  }
}

// Computes dout · out of the warp's 16 queries into shared memory and the statistics.
template <int kDim>
__device__ __forceinline__ void Deltas(const BackwardArgs& args,
                                       const Block& block,
                                       int64_t slot,
                                       float* deltas) {
  constexpr int kLanes = kDim / 8;  // of a query
  const int lane = LaneId();
  TANDEM_UNROLL
  for (int first = 0; first < kWarpQueries; first += 32 / kLanes) {
    const int query = WarpId() * kWarpQueries + first + lane / kLanes;
    const int64_t row = block.Row(query), col = block.Head(query) * kDim + lane % kLanes * 8;
    const Words4 a = *reinterpret_cast<const Words4*>(args.out + row * args.out_stride + col);
    const Words4 b = *reinterpret_cast<const Words4*>(args.dout + row * args.dout_stride + col);
    float sum = LowBf16(a.x) * LowBf16(b.x);
    sum = fmaf(HighBf16(a.x), HighBf16(b.x), sum);
    sum = fmaf(LowBf16(a.y), LowBf16(b.y), sum);
    sum = fmaf(HighBf16(a.y), HighBf16(b.y), sum);
    sum = fmaf(LowBf16(a.z), LowBf16(b.z), sum);
    sum = fmaf(HighBf16(a.z), HighBf16(b.z), sum);
    sum = fmaf(LowBf16(a.w), LowBf16(b.w), sum);
    sum = fmaf(HighBf16(a.w), HighBf16(b.w), sum);
    TANDEM_UNROLL
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) sum += ShuffleXor(sum, lanes);
    if (lane % kLanes == 0) {
      deltas[query] = sum;
      args.deltas[slot + query] = sum;
    }
  }
}

// scores [16, 64] = 16 rows of `a`, starting at `first`, times the rows of `b`, transposed.
template <int kDim>
__device__ __forceinline__ void Scores(float (&scores)[kTileKeys / 8][4],
                                       const uint16_t* a,
                                       int first,
                                       const uint16_t* b) {
  TANDEM_UNROLL
  for (int step = 0; step < kDim / 16; ++step) {
    uint32_t rows[4];
    LoadRows<kDim>(rows, a, first, step);
    TANDEM_UNROLL
    for (int pair = 0; pair < kTileKeys / 16; ++pair) {
      uint32_t cols[2][2];
      LoadTransposedPair<kDim>(cols, b, pair * 16, step);
      MmaBf16(scores[2 * pair], rows, cols[0]);
      MmaBf16(scores[2 * pair + 1], rows, cols[1]);
    }
  }
}

// The state of a warp's 16 queries.
template <int kDim>
struct WarpRows {
  int position[2];
  float delta[2];
  OnlineRow row[2];
  float sums[kDim / 8][4];
};

template <int kDim>
__device__ __forceinline__ void TakeTile(WarpRows<kDim>& rows,
                                         const Buffers<kDim>& buffers,
                                         int buffer,
                                         int first_position,
                                         float scale_log2) {
  const int first = WarpId() * kWarpQueries;
  float weights[kTileKeys / 8][4] = {};
  Scores<kDim>(weights, buffers.Queries(), first, buffers.Keys(buffer));
  WeighTile<kDim>(rows, weights, first_position, scale_log2);
  float gradients[kTileKeys / 8][4] = {};
  Scores<kDim>(gradients, buffers.Douts(), first, buffers.Values(buffer));
  TANDEM_UNROLL
  for (int j = 0; j < kTileKeys / 8; ++j) {
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) {
      gradients[j][i] = weights[j][i] * (gradients[j][i] - rows.delta[i / 2]);
    }
  }
  AddWeighted<kDim, kTileKeys / 16>(rows.sums, gradients, buffers.Keys(buffer));
}

// Stores dq through the warp's rows of shared memory, and the log-sum-exp.
template <int kDim>
__device__ __forceinline__ void Store(const BackwardArgs& args,
                                      const Block& block,
                                      int64_t slot,
                                      const WarpRows<kDim>& rows,
                                      const Buffers<kDim>& buffers) {
  const int lane = LaneId(), first = WarpId() * kWarpQueries;
  // Other lanes of the warp have read the queries that are overwritten here.
  SyncWarp();
  TANDEM_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int query = first + lane / 4 + r * 8;
    const float total = RowSum(rows.row[r].sum);
    if (lane % 4 == 0) args.log_sums[slot + query] = rows.row[r].max + log2f(total);
    const float factor = args.scale / total;
    TANDEM_UNROLL
    for (int j = 0; j < kDim / 8; ++j) {
      reinterpret_cast<uint32_t*>(ChunkAt<kDim>(buffers.Queries(), query, j))[lane % 4] =
          PackBf16(rows.sums[j][2 * r] * factor + 0.0f, rows.sums[j][2 * r + 1] * factor + 0.0f);
    }
  }
  SyncWarp();
  for (int i = lane; i < kWarpQueries * (kDim / 8); i += 32) {
    const int query = first + i / (kDim / 8), chunk = i % (kDim / 8);
    if (query >= block.queries) break;
    *reinterpret_cast<Words4*>(args.dqkv + block.Row(query) * args.dqkv_stride +
                               block.Head(query) * kDim + chunk * 8) =
        *reinterpret_cast<const Words4*>(ChunkAt<kDim>(buffers.Queries(), query, chunk));
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads) QueryKernel(BackwardArgs args) {
  const BackwardTile tile = args.tiles[blockIdx.x];
  Block block;
  block.span = args.spans[tile.span];
  block.kv_head = static_cast<int>(blockIdx.y);
  block.group = args.heads.group;
  block.first_query = tile.first_query;
  const int left = block.span.rows * block.group.size - tile.first_query;
  block.queries = left < kBackwardQueries ? left : kBackwardQueries;
  const int last = block.Position(kBackwardQueries - 1), end = TilesTo(last);
  const int64_t slot = block.kv_head * args.slots + block.span.stats + tile.first_query;

  const Buffers<kDim> buffers = {reinterpret_cast<uint16_t*>(SharedMemory())};
  const auto copy_tile = [&](int t) {
    CopyKeyTile<kDim>(args, block, t * kTileKeys, last, buffers.Keys(t % 2), buffers.Values(t % 2));
  };
  CopyQueries<kDim>(args, block, buffers);
  copy_tile(0);
  CopyCommit();
  Deltas<kDim>(args, block, slot, buffers.Deltas());

  const int first = WarpId() * kWarpQueries;
  WarpRows<kDim> rows;
  TANDEM_UNROLL
  for (int j = 0; j < kDim / 8; ++j) {
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) rows.sums[j][i] = 0.0f;
  }
  SyncWarp();
  TANDEM_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int query = first + LaneId() / 4 + r * 8;
    rows.position[r] = block.Position(query);
    rows.delta[r] = buffers.Deltas()[query];
  }
  const int warp_last = block.Position(first + kWarpQueries - 1);
  for (int t = 0; t < end; ++t) {
    CopyWait<0>();
    __syncthreads();
    if (t + 1 < end) copy_tile(t + 1);
    CopyCommit();
    if (first < block.queries && t * kTileKeys <= warp_last) {
      TakeTile<kDim>(rows, buffers, t % 2, t * kTileKeys, args.scale_log2);
    }
  }
  Store<kDim>(args, block, slot, rows, buffers);
}

}  // namespace

void QueryGradients(const BackwardArgs& args, CudaStream stream) {
  const LaunchShape shape =
      QueryGradientShape(args.tile_count, args.heads.kv_heads, args.heads.head_dim);
  args.heads.head_dim == 64 ? Launch(&QueryKernel<64>, shape, stream, args)
                            : Launch(&QueryKernel<128>, shape, stream, args);
}

}  // namespace tandem::attention
