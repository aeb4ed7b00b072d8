// Causal attention over paged KV. A block takes a tile of queries of one KV head, a warp 16 of
// them, over tiles of 64 keys, ascending; the next tile is copied while one is used. What a row
// gets does not depend on its block's shape: a tile with none of a row's keys leaves the row's bits
// alone (the maximum stays, sums are multiplied by 1 and get zeros added), so warps skip those.
// tensor cores: ForwardKernel
#include "common/ops/cuda/attention/attention_fragments.h"
#include "common/ops/cuda/attention/attention_kernels.h"

namespace tandem::attention {
namespace {

// The shared memory of a block.
template <int kDim>
struct Buffers {
  static constexpr int kTile = kTileKeys * kDim;  // elements
  uint16_t* memory;

  __device__ __forceinline__ uint16_t* Keys(int buffer) const { return memory + buffer * kTile; }
  __device__ __forceinline__ uint16_t* Values(int buffer) const {
    return memory + (2 + buffer) * kTile;
  }
  // [warps * 16][kDim]: the queries, and in the end the results.
  __device__ __forceinline__ uint16_t* Queries() const { return memory + 4 * kTile; }
  // Results of earlier segments, separate for each thread: its sums, then maximum and total of two
  // rows. Each thread uses its own bank.
  __device__ __forceinline__ float& Earlier(int index) const {
    return reinterpret_cast<float*>(
        Queries())[index * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)];
  }
};

// The 16 queries of a warp as they pass over keys: of each lane, rows lane / 4 and 8 below it.
template <int kDim>
struct WarpRows {
  int position[2];
  OnlineRow row[2];
  float sums[kDim / 8][4];

  __device__ __forceinline__ void BeginSegment() {
    row[0] = row[1] = OnlineRow();
    TANDEM_UNROLL
    for (int j = 0; j < kDim / 8; ++j) {
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) sums[j][i] = 0.0f;
    }
  }
};

// Copies rows of queries from the q columns to shared memory (zeros past the tile), 16 bytes per
// thread.
template <int kDim, int kWarps>
__device__ __forceinline__ void CopyQueries(const ForwardArgs& args,
                                            const QueryTile& tile,
                                            int kv_head,
                                            uint16_t* to) {
  const Group group = args.heads.group;
  for (int i = static_cast<int>(threadIdx.x); i < kWarps * kWarpQueries * (kDim / 8);
       i += kWarps * 32) {
    const int query = i / (kDim / 8), chunk = i % (kDim / 8);
    const bool valid = query < tile.queries;
    const int at = valid ? query : 0;
    const int64_t row = tile.first_row + RowOf(tile, at, group);
    const int64_t col = static_cast<int64_t>(kv_head * group.size + HeadOf(tile, at, group)) * kDim;
    CopyAsync16(ChunkAt<kDim>(to, query, chunk), args.qkv + row * args.qkv_stride + col + chunk * 8,
                valid);
  }
}

// Copies one block of one KV head, K followed by V. Keys after `last` are undefined and replaced by
// zeros.
template <int kDim, int kWarps>
__device__ __forceinline__ void CopyKeyTile(
    const unsigned char* kv, int first_position, int last, uint16_t* keys, uint16_t* values) {
  const auto* from = reinterpret_cast<const uint16_t*>(kv);
  for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * (kDim / 8); i += kWarps * 32) {
    const int key = i / (kDim / 8), chunk = i % (kDim / 8);
    const bool valid = first_position + key <= last;
    CopyAsync16(ChunkAt<kDim>(keys, key, chunk), from + i * 8, valid);
    CopyAsync16(ChunkAt<kDim>(values, key, chunk), from + kTileKeys * kDim + i * 8, valid);
  }
}

// Processes one tile of keys, starting at `first_position`.
template <int kDim>
__device__ __forceinline__ void TakeTile(WarpRows<kDim>& rows,
                                         const uint32_t (&q)[kDim / 16][4],
                                         const uint16_t* keys,
                                         const uint16_t* values,
                                         int first_position,
                                         float scale_log2) {
  float scores[kTileKeys / 8][4] = {};
  TANDEM_UNROLL
  for (int step = 0; step < kDim / 16; ++step) {
    TANDEM_UNROLL
    for (int pair = 0; pair < kTileKeys / 16; ++pair) {
      uint32_t b[2][2];
      LoadTransposedPair<kDim>(b, keys, pair * 16, step);
      MmaBf16(scores[2 * pair], q[step], b[0]);
      MmaBf16(scores[2 * pair + 1], q[step], b[1]);
    }
  }
  WeighTile<kDim>(rows, scores, first_position, scale_log2);
  AddWeighted<kDim, kTileKeys / 16>(rows.sums, scores, values);
}

// Adds the segment that begins at `first_position` to the earlier ones, in `rows`; a row that ends
// before the segment keeps its earlier results. All lanes of a row decide alike.
template <int kDim>
__device__ __forceinline__ void AddToEarlier(WarpRows<kDim>& rows,
                                             const Buffers<kDim>& buffers,
                                             int first_position) {
  TANDEM_UNROLL
  for (int r = 0; r < 2; ++r) {
    const bool takes = rows.position[r] >= first_position;
    const float max = buffers.Earlier(kDim / 2 + r), sum = buffers.Earlier(kDim / 2 + 2 + r);
    const SegmentFactors factors = FactorsOf(max, rows.row[r].max);
    rows.row[r].max = takes ? factors.max : max;
    rows.row[r].sum = takes ? AddSegment(factors, sum, rows.row[r].sum) : sum;
    TANDEM_UNROLL
    for (int j = 0; j < kDim / 8; ++j) {
      TANDEM_UNROLL
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        const float before = buffers.Earlier(j * 4 + i);
        rows.sums[j][i] = takes ? AddSegment(factors, before, rows.sums[j][i]) : before;
      }
    }
  }
}

template <int kDim>
__device__ __forceinline__ void KeepEarlier(const WarpRows<kDim>& rows,
                                            const Buffers<kDim>& buffers) {
  TANDEM_UNROLL
  for (int r = 0; r < 2; ++r) {
    buffers.Earlier(kDim / 2 + r) = rows.row[r].max;
    buffers.Earlier(kDim / 2 + 2 + r) = rows.row[r].sum;
  }
  TANDEM_UNROLL
  for (int j = 0; j < kDim / 8; ++j) {
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) buffers.Earlier(j * 4 + i) = rows.sums[j][i];
  }
}

// Divides by the totals and writes 16 bytes per thread through shared memory.
template <int kDim>
__device__ __forceinline__ void StoreRows(const ForwardArgs& args,
                                          const QueryTile& tile,
                                          int kv_head,
                                          const WarpRows<kDim>& rows,
                                          const Buffers<kDim>& buffers) {
  const int lane = LaneId(), first = WarpId() * kWarpQueries;
  const Group group = args.heads.group;
  // The slots of Earlier belong to all warps.
  __syncthreads();
  TANDEM_UNROLL
  for (int r = 0; r < 2; ++r) {
    const float inverse = 1.0f / rows.row[r].sum;
    TANDEM_UNROLL
    for (int j = 0; j < kDim / 8; ++j) {
      uint16_t* const at = ChunkAt<kDim>(buffers.Queries(), first + lane / 4 + r * 8, j);
      // + 0, because a masked key's product may leave a negative zero.
      reinterpret_cast<uint32_t*>(at)[lane % 4] =
          PackBf16(rows.sums[j][2 * r] * inverse + 0.0f, rows.sums[j][2 * r + 1] * inverse + 0.0f);
    }
  }
  SyncWarp();
  for (int i = lane; i < kWarpQueries * (kDim / 8); i += 32) {
    const int query = first + i / (kDim / 8), chunk = i % (kDim / 8);
    if (query >= tile.queries) break;
    const int64_t row = tile.first_row + RowOf(tile, query, group);
    const int64_t col =
        static_cast<int64_t>(kv_head * group.size + HeadOf(tile, query, group)) * kDim;
    *reinterpret_cast<Words4*>(args.out + row * args.out_stride + col + chunk * 8) =
        *reinterpret_cast<const Words4*>(ChunkAt<kDim>(buffers.Queries(), query, chunk));
  }
}

// Stores the results of one segment for CombineSegments.
template <int kDim>
__device__ __forceinline__ void StorePartial(const ForwardArgs& args,
                                             const QueryTile& tile,
                                             int64_t slot,
                                             const WarpRows<kDim>& rows) {
  const int lane = LaneId();
  TANDEM_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int query = WarpId() * kWarpQueries + lane / 4 + r * 8;
    if (query >= tile.queries) continue;
    float* const stats = args.partial_stats + (slot + query) * 2;
    if (lane % 4 == 0) {
      stats[0] = rows.row[r].max;
      stats[1] = rows.row[r].sum;
    }
    float* const sums = args.partial_sums + (slot + query) * kDim + lane % 4 * 2;
    TANDEM_UNROLL
    for (int j = 0; j < kDim / 8; ++j) {
      sums[j * 8] = rows.sums[j][2 * r];
      sums[j * 8 + 1] = rows.sums[j][2 * r + 1];
    }
  }
}

template <int kDim, int kWarps>
__global__ void __launch_bounds__(kWarps * 32) ForwardKernel(ForwardArgs args) {
  const int index = static_cast<int>(blockIdx.x) / args.segments;
  const int segment = static_cast<int>(blockIdx.x) % args.segments;
  const int kv_head = static_cast<int>(blockIdx.y);
  const Group group = args.heads.group;
  const QueryTile tile = args.tiles[index];
  const int last = LastPosition(tile, group), segments = SegmentsTo(last);
  if (segment >= segments) return;
  const bool side_by_side = args.segments > 1;
  const int begin = segment * kSegmentTiles;
  const int end = side_by_side && segment + 1 < segments ? begin + kSegmentTiles : TilesTo(last);

  const Buffers<kDim> buffers = {reinterpret_cast<uint16_t*>(SharedMemory())};
  const int32_t* const table = args.tables + tile.table;
  const int64_t head_offset = static_cast<int64_t>(kv_head) * 2 * KeyTileBytes(kDim);
  const auto copy_tile = [&](int t) {
    CopyKeyTile<kDim, kWarps>(args.kv + table[t] * args.block_bytes + head_offset, t * kTileKeys,
                              last, buffers.Keys(t % 2), buffers.Values(t % 2));
  };
  CopyQueries<kDim, kWarps>(args, tile, kv_head, buffers.Queries());
  copy_tile(begin);
  CopyCommit();
  CopyWait<0>();
  __syncthreads();

  const int first = WarpId() * kWarpQueries;
  uint32_t q[kDim / 16][4];
  TANDEM_UNROLL
  for (int step = 0; step < kDim / 16; ++step) {
    LoadRows<kDim>(q[step], buffers.Queries(), first, step);
  }
  WarpRows<kDim> rows;
  TANDEM_UNROLL
  for (int r = 0; r < 2; ++r) {
    // Rows past the tile repeat its last one and are not stored.
    const int query = first + LaneId() / 4 + r * 8;
    rows.position[r] = PositionOf(tile, query < tile.queries ? query : tile.queries - 1, group);
  }
  const int warp_last = PositionOf(
      tile, first + kWarpQueries < tile.queries ? first + kWarpQueries - 1 : tile.queries - 1,
      group);
  rows.BeginSegment();
  // Adds the results of the segment that ends before tile t to those of the block's earlier
  // segments.
  const auto end_segment = [&](int t) {
    rows.row[0].sum = RowSum(rows.row[0].sum);
    rows.row[1].sum = RowSum(rows.row[1].sum);
    const int segment_begin = (t - 1) / kSegmentTiles * kSegmentTiles;
    if (segment_begin > begin) AddToEarlier(rows, buffers, segment_begin * kTileKeys);
  };
  for (int t = begin; t < end; ++t) {
    if (t > begin) {
      CopyWait<0>();
      __syncthreads();
      if (t % kSegmentTiles == 0) {
        end_segment(t);
        KeepEarlier(rows, buffers);
        rows.BeginSegment();
      }
    }
    if (t + 1 < end) copy_tile(t + 1);
    CopyCommit();
    if (first < tile.queries && t * kTileKeys <= warp_last) {
      TakeTile<kDim>(rows, q, buffers.Keys(t % 2), buffers.Values(t % 2), t * kTileKeys,
                     args.scale_log2);
    }
  }
  end_segment(end);
  if (side_by_side && segments > 1) {
    StorePartial<kDim>(
        args, tile,
        PartialSlot(index, kv_head, segment, 0, args.heads.kv_heads, args.segments, args.queries),
        rows);
  } else {
    StoreRows<kDim>(args, tile, kv_head, rows, buffers);
  }
}

}  // namespace

void ForwardTiles(const ForwardArgs& args, int warps, CudaStream stream) {
  const LaunchShape shape =
      ForwardShape(args.tile_count, args.segments, args.heads.kv_heads, warps, args.heads.head_dim);
  if (args.heads.head_dim == 64) {
    warps == 1 ? Launch(&ForwardKernel<64, 1>, shape, stream, args)
               : Launch(&ForwardKernel<64, kManyWarps>, shape, stream, args);
  } else {
    warps == 1 ? Launch(&ForwardKernel<128, 1>, shape, stream, args)
               : Launch(&ForwardKernel<128, kManyWarps>, shape, stream, args);
  }
}

}  // namespace tandem::attention
