// dk and dv of attention: a block takes 64 keys of one KV head, a warp 16 of them, and the queries
// that see them pass, 32 at a time: those of the keys' own span, ascending, then, where the keys
// are a prefix, those of the spans that continue it, in order. Weights come from the log-sum-exps.
// tensor cores: KeyKernel
#include "common/ops/cuda/attention/attention_fragments.h"
#include "common/ops/cuda/attention/attention_kernels.h"

namespace tandem::attention {
namespace {

constexpr int kThreads = kManyWarps * 32;

// Data of the queries that pass.
struct Passing {
  float log_sum[kPassingQueries];
  float delta[kPassingQueries];
  int last_key[kPassingQueries];  // the last position it sees; -1 past the span's last query
};

template <int kDim>
struct Buffers {
  static constexpr int kTile = kTileKeys * kDim, kHalf = kPassingQueries * kDim;  // elements
  uint16_t* memory;

  __device__ __forceinline__ uint16_t* Keys() const { return memory; }
  __device__ __forceinline__ uint16_t* Values() const { return memory + kTile; }
  __device__ __forceinline__ uint16_t* Queries(int buffer) const {
    return memory + 2 * kTile + buffer * kHalf;
  }
  __device__ __forceinline__ uint16_t* Douts(int buffer) const {
    return memory + 2 * kTile + (2 + buffer) * kHalf;
  }
  __device__ __forceinline__ Passing& Stats(int buffer) const {
    return reinterpret_cast<Passing*>(memory + 2 * kTile + 4 * kHalf)[buffer];
  }
};

// Identifies the queries that pass: query `query` of a viewer's span.
struct Cursor {
  int viewer, query;

  __device__ __forceinline__ bool Valid(const KeyTile& tile) const { return viewer < tile.end; }
  __device__ __forceinline__ void Step(const BackwardArgs& args) {
    query += kPassingQueries;
    if (query < args.spans[args.viewers[viewer]].rows * args.heads.group.size) return;
    query = 0;
    ++viewer;
  }
};

template <int kDim>
__device__ __forceinline__ void CopyKeys(const BackwardArgs& args,
                                         const BackwardSpan& span,
                                         int first,
                                         int kv_head,
                                         const Buffers<kDim>& buffers) {
  const int64_t k_col = static_cast<int64_t>(args.heads.heads + kv_head) * kDim;
  const int64_t v_offset = static_cast<int64_t>(args.heads.kv_heads) * kDim;
  for (int i = static_cast<int>(threadIdx.x); i < kTileKeys * (kDim / 8); i += kThreads) {
    const int key = i / (kDim / 8), chunk = i % (kDim / 8);
    const bool valid = first + key < span.rows;
    const int64_t row = span.first_row + (valid ? first + key : first);
    const uint16_t* const from = args.qkv + row * args.qkv_stride + k_col + chunk * 8;
    CopyAsync16(ChunkAt<kDim>(buffers.Keys(), key, chunk), from, valid);
    CopyAsync16(ChunkAt<kDim>(buffers.Values(), key, chunk), from + v_offset, valid);
  }
}

template <int kDim>
__device__ __forceinline__ void CopyQueries(const BackwardArgs& args,
                                            const KeyTile& tile,
                                            const Cursor& cursor,
                                            int kv_head,
                                            const Buffers<kDim>& buffers,
                                            int buffer) {
  const int viewer = args.viewers[cursor.viewer];
  const BackwardSpan span = args.spans[viewer];
  const Group group = args.heads.group;
  const int queries = span.rows * group.size;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kPassingQueries * (kDim / 8); i += kThreads) {
    const int index = i / (kDim / 8), chunk = i % (kDim / 8), query = cursor.query + index;
    const bool valid = query < queries;
    const int at = valid ? query : 0, index_row = group.Divide(at);
    const int64_t row = span.first_row + index_row;
    const int64_t head = kv_head * group.size + at - index_row * group.size;
    const int64_t col = head * kDim + chunk * 8;
    CopyAsync16(ChunkAt<kDim>(buffers.Queries(buffer), index, chunk),
                args.qkv + row * args.qkv_stride + col, valid);
    CopyAsync16(ChunkAt<kDim>(buffers.Douts(buffer), index, chunk),
                args.dout + row * args.dout_stride + col, valid);
  }
  Passing& stats = buffers.Stats(buffer);
  if (thread < kPassingQueries / 4) {
    const int64_t slot = kv_head * args.slots + span.stats + cursor.query + thread * 4;
    CopyAsync16(stats.log_sum + thread * 4, args.log_sums + slot);
    CopyAsync16(stats.delta + thread * 4, args.deltas + slot);
  }
  if (thread < kPassingQueries) {
    const int query = cursor.query + thread;
    stats.last_key[thread] =
        query < queries ? LastKeySeen(span, group.Divide(query), viewer == tile.span) : -1;
  }
}

// Queries whose weights a warp holds at a time; more would not fit into the registers with the
// sums.
constexpr int kAtOnce = 16;

// products [16, kAtOnce] = the warp's 16 rows of `a` times the first rows of `b`, transposed.
template <int kDim>
__device__ __forceinline__ void Products(float (&products)[kAtOnce / 8][4],
                                         const uint16_t* a,
                                         const uint16_t* b) {
  TANDEM_UNROLL
  for (int step = 0; step < kDim / 16; ++step) {
    uint32_t rows[4], cols[2][2];
    LoadRows<kDim>(rows, a, WarpId() * kWarpQueries, step);
    LoadTransposedPair<kDim>(cols, b, 0, step);
    MmaBf16(products[0], rows, cols[0]);
    MmaBf16(products[1], rows, cols[1]);
  }
}

// kAtOnce queries, starting at `first`, pass over the warp's keys; a lane holds the keys at
// position[0] and position[1].
template <int kDim>
__device__ __forceinline__ void TakeQueries(float (&dk)[kDim / 8][4],
                                            float (&dv)[kDim / 8][4],
                                            const Buffers<kDim>& buffers,
                                            int buffer,
                                            int first,
                                            const int (&position)[2],
                                            float scale_log2) {
  const Passing& stats = buffers.Stats(buffer);
  const uint16_t* const queries = buffers.Queries(buffer) + first * kDim;
  const uint16_t* const douts = buffers.Douts(buffer) + first * kDim;
  float weights[kAtOnce / 8][4] = {};
  Products<kDim>(weights, buffers.Keys(), queries);
  TANDEM_UNROLL
  for (int j = 0; j < kAtOnce / 8; ++j) {
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int query = first + j * 8 + LaneId() % 4 * 2 + i % 2;
      const float weight = exp2f(fmaf(weights[j][i], scale_log2, -stats.log_sum[query]));
      weights[j][i] = position[i / 2] <= stats.last_key[query] ? weight : 0.0f;
    }
  }
  AddWeighted<kDim, kAtOnce / 16>(dv, weights, douts);
  float gradients[kAtOnce / 8][4] = {};
  Products<kDim>(gradients, buffers.Values(), douts);
  TANDEM_UNROLL
  for (int j = 0; j < kAtOnce / 8; ++j) {
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int query = first + j * 8 + LaneId() % 4 * 2 + i % 2;
      gradients[j][i] = weights[j][i] * (gradients[j][i] - stats.delta[query]);
    }
  }
  AddWeighted<kDim, kAtOnce / 16>(dk, gradients, queries);
}

// Stores a gradient of the warp's keys through its rows of `stage`, 16 bytes per thread.
template <int kDim>
__device__ __forceinline__ void Store(const BackwardArgs& args,
                                      const float (&sums)[kDim / 8][4],
                                      float factor,
                                      const BackwardSpan& span,
                                      int first,
                                      int64_t col,
                                      uint16_t* stage) {
  const int lane = LaneId(), warp_first = WarpId() * kWarpQueries;
  TANDEM_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int key = warp_first + lane / 4 + r * 8;
    TANDEM_UNROLL
    for (int j = 0; j < kDim / 8; ++j) {
      reinterpret_cast<uint32_t*>(ChunkAt<kDim>(stage, key, j))[lane % 4] =
          PackBf16(sums[j][2 * r] * factor + 0.0f, sums[j][2 * r + 1] * factor + 0.0f);
    }
  }
  SyncWarp();
  for (int i = lane; i < kWarpQueries * (kDim / 8); i += 32) {
    const int key = warp_first + i / (kDim / 8), chunk = i % (kDim / 8);
    if (first + key >= span.rows) break;
    *reinterpret_cast<Words4*>(args.dqkv + (span.first_row + first + key) * args.dqkv_stride + col +
                               chunk * 8) =
        *reinterpret_cast<const Words4*>(ChunkAt<kDim>(stage, key, chunk));
  }
}

// Stores a part in the same way, without rounding.
template <int kDim>
__device__ __forceinline__ void StorePart(const float (&sums)[kDim / 8][4], float* to) {
  TANDEM_UNROLL
  for (int r = 0; r < 2; ++r) {
    float* const row =
        to + (WarpId() * kWarpQueries + LaneId() / 4 + r * 8) * kDim + LaneId() % 4 * 2;
    TANDEM_UNROLL
    for (int j = 0; j < kDim / 8; ++j) {
      row[j * 8] = sums[j][2 * r];
      row[j * 8 + 1] = sums[j][2 * r + 1];
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads, kDim == 64 ? 3 : 2) KeyKernel(BackwardArgs args) {
  const KeyTile tile = args.key_tiles[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y);
  const BackwardSpan span = args.spans[tile.span];
  const Buffers<kDim> buffers = {reinterpret_cast<uint16_t*>(SharedMemory())};
  Cursor copied = {tile.begin, args.viewers[tile.begin] == tile.span
                                   ? FirstPassing(tile.first, args.heads.group.size)
                                   : 0};
  CopyKeys<kDim>(args, span, tile.first, kv_head, buffers);
  CopyQueries<kDim>(args, tile, copied, kv_head, buffers, 0);
  CopyCommit();
  int position[2];
  TANDEM_UNROLL
  for (int r = 0; r < 2; ++r) {
    position[r] = span.first_position + tile.first + WarpId() * kWarpQueries + LaneId() / 4 + r * 8;
  }
  float dk[kDim / 8][4], dv[kDim / 8][4];
  TANDEM_UNROLL
  for (int j = 0; j < kDim / 8; ++j) {
    TANDEM_UNROLL
    for (int i = 0; i < 4; ++i) dk[j][i] = dv[j][i] = 0.0f;
  }
  for (int buffer = 0; copied.Valid(tile); buffer ^= 1) {
    CopyWait<0>();
    __syncthreads();
    copied.Step(args);
    if (copied.Valid(tile)) CopyQueries<kDim>(args, tile, copied, kv_head, buffers, buffer ^ 1);
    CopyCommit();
    for (int first = 0; first < kPassingQueries; first += kAtOnce) {
      TakeQueries<kDim>(dk, dv, buffers, buffer, first, position, args.scale_log2);
    }
  }
  if (tile.part >= 0) {
    float* const part =
        args.parts +
        (static_cast<int64_t>(tile.part) * args.heads.kv_heads + kv_head) * PartFloats(kDim);
    StorePart<kDim>(dk, part);
    StorePart<kDim>(dv, part + kTileKeys * kDim);
    return;
  }
  // Only this warp reads its rows of K and V.
  SyncWarp();
  const int64_t k_col = static_cast<int64_t>(args.heads.heads + kv_head) * kDim;
  const int64_t v_col = k_col + static_cast<int64_t>(args.heads.kv_heads) * kDim;
  Store<kDim>(args, dk, args.scale, span, tile.first, k_col, buffers.Keys());
  Store<kDim>(args, dv, 1.0f, span, tile.first, v_col, buffers.Values());
}

// A thread adds the parts of 8 elements of a row of dk or, after all of those, of dv.
__global__ void AddPartsKernel(BackwardArgs args) {
  const SharedKeyTile tile = args.shared_tiles[blockIdx.z];
  const int kv_heads = args.heads.kv_heads, kv_head = static_cast<int>(blockIdx.y);
  const int dim = args.heads.head_dim;
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 8;
  const bool is_value = at >= kTileKeys * dim;
  const int key = at / dim % kTileKeys, col = at % dim;
  const BackwardSpan span = args.spans[tile.span];
  if (tile.first + key >= span.rows) return;
  float sums[8] = {};
  for (int part = 0; part < tile.parts; ++part) {
    const float* const from =
        args.parts +
        (static_cast<int64_t>(tile.part + part) * kv_heads + kv_head) * PartFloats(dim) + at;
    TANDEM_UNROLL
    for (int i = 0; i < 8; i += 4) {
      const Words4 words = *reinterpret_cast<const Words4*>(from + i);
      sums[i] += BitsToFloat(words.x);
      sums[i + 1] += BitsToFloat(words.y);
      sums[i + 2] += BitsToFloat(words.z);
      sums[i + 3] += BitsToFloat(words.w);
    }
  }
  const float factor = is_value ? 1.0f : args.scale;
  TANDEM_UNROLL
  for (int i = 0; i < 8; ++i) sums[i] = sums[i] * factor + 0.0f;
  const int64_t head = args.heads.heads + (is_value ? kv_heads : 0) + kv_head;
  const int64_t row = span.first_row + tile.first + key;
  *reinterpret_cast<Words4*>(args.dqkv + row * args.dqkv_stride + head * dim + col) = {
      PackBf16(sums[0], sums[1]), PackBf16(sums[2], sums[3]), PackBf16(sums[4], sums[5]),
      PackBf16(sums[6], sums[7])};
}

}  // namespace

void KeyGradients(const BackwardArgs& args, CudaStream stream) {
  const LaunchShape shape =
      KeyGradientShape(args.key_tile_count, args.heads.kv_heads, args.heads.head_dim);
  args.heads.head_dim == 64 ? Launch(&KeyKernel<64>, shape, stream, args)
                            : Launch(&KeyKernel<128>, shape, stream, args);
  if (args.shared_tile_count == 0) return;
  Launch(&AddPartsKernel,
         AddPartsShape(args.shared_tile_count, args.heads.kv_heads, args.heads.head_dim), stream,
         args);
}

}  // namespace tandem::attention
