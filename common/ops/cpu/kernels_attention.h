// Causal attention of a few rows over the paged KV of their sequence. Two passes: all scores, then
// softmax, then P·V from position 0 in tiles of 64 keys. Each (row, head) is a pure function of its
// query and the keys and values up to its position: keys beyond it get P = 0 exactly, and a final
// + 0 turns a -0 that such a key could leave into +0.
#pragma once

#include "common/ops/cpu/kernels_gemm.h"
#include "common/ops/cpu/kv_layout.h"

namespace tandem {
namespace {

// Scratch of a task: queries, scores and probabilities of its rows, and the output accumulators.
template <typename T>
struct AttentionScratch {
  int64_t queries, tiles, score_cols, out_cols;
  // Between rows of scores and probs: not a power of two, or all rows meet in one set of the cache.
  int64_t stride;
  T* q;
  float* scores;
  T* probs;
  float* sums;
  float* out;
  int64_t bytes = 0;

  AttentionScratch(const AttentionCall& call, const AttentionTask& task, std::byte* memory) {
    queries = task.rows * (call.heads / call.kv_heads);
    tiles = (task.first_position + task.rows + kKvTokens - 1) / kKvTokens;
    score_cols = tiles * kKvTokens;
    stride = score_cols + 32;
    out_cols = KvPaddedDim(call.head_dim);
    scores = Take<float>(memory, queries * stride);
    out = Take<float>(memory, queries * out_cols);
    sums = Take<float>(memory, queries);
    probs = Take<T>(memory, queries * stride);
    q = Take<T>(memory, queries * call.head_dim);
  }

 private:
  // As ScratchLayout, which would have external linkage here.
  template <typename E>
  E* Take(std::byte* memory, int64_t count) {
    const int64_t at = bytes;
    bytes += (count * static_cast<int64_t>(sizeof(E)) + 63) / 64 * 64;
    return memory == nullptr ? nullptr : reinterpret_cast<E*>(memory + at);
  }
};

template <typename T>
int64_t AttentionScratchBytes(const AttentionCall& call, const AttentionTask& task) {
  return AttentionScratch<T>(call, task, nullptr).bytes;
}

template <typename T>
void CopyQueries(const AttentionCall& call, const AttentionTask& task, T* q) {
  const int64_t group = call.heads / call.kv_heads;
  const T* qkv = static_cast<const T*>(call.qkv);
  const size_t bytes = static_cast<size_t>(group * call.head_dim) * sizeof(T);
  for (int64_t row = 0; row < task.rows; ++row) {
    const int64_t from =
        (task.first_row + row) * call.qkv_stride + task.kv_head * group * call.head_dim;
    __builtin_memcpy(q + row * group * call.head_dim, qkv + from, bytes);
  }
}

// exp(scores * scale - max) over the first n, rounded into probs, zeros up to `cols`; returns the
// sum before rounding.
template <typename T>
float SoftmaxRow(float* scores, float scale, int64_t n, int64_t cols, T* probs) {
  const F32x16 factor = Set1(scale);
  F32x16 highest = Set1(-__builtin_inff());
  for (int64_t i = 0; i < n; i += 16) {
    F32x16 x = Mul(Load(scores + i), factor);
    if (n - i < 16) x = KeepFirst(x, n - i, -__builtin_inff());
    Store(scores + i, x);
    highest = Max(highest, x);
  }
  const F32x16 max = Set1(MaxLanes(highest));
  F32x16 sum = Zero();
  int64_t i = 0;
  for (; i < n; i += 16) {
    F32x16 e = Exp(Sub(Load(scores + i), max));
    if (n - i < 16) e = KeepFirst(e, n - i, 0.0f);
    sum = Add(sum, e);
    Store(probs + i, e);
  }
  for (; i < cols; i += 16) Store(probs + i, Zero());
  return SumLanes(sum);
}

// Few queries wait for memory: the next tile is fetched while one is used.
TANDEM_INLINE void PrefetchTile(const std::byte* tile, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(tile) + i, _MM_HINT_T1);
  }
}

template <typename T>
void Attention(const AttentionCall& call, const AttentionTask& task, std::byte* memory) {
  const AttentionScratch<T> scratch(call, task, memory);
  const int64_t group = call.heads / call.kv_heads;
  const auto kv_head = [&](int64_t tile) {
    return call.kv + task.blocks[tile] * call.kv_block_bytes +
           task.kv_head * KvHeadBytes(call.head_dim, sizeof(T));
  };
  const int64_t key_bytes = KvKeyBytes(call.head_dim, sizeof(T));
  CopyQueries(call, task, scratch.q);
  GemmContext<T> gemm;
  GemmCall product;
  product.a = scratch.q;
  product.a_stride = call.head_dim;
  product.panel_bytes = KvKeyPanelBytes(call.head_dim, sizeof(T));
  product.k = call.head_dim;
  product.n = kKvTokens;
  product.c_stride = scratch.stride;
  product.output = GemmCall::Output::kFloat;
  for (int64_t tile = 0; tile < scratch.tiles; ++tile) {
    if (task.rows == 1 && tile + 1 < scratch.tiles) PrefetchTile(kv_head(tile + 1), key_bytes);
    product.b = kv_head(tile);
    product.c = scratch.scores + tile * kKvTokens;
    gemm.Run(product, 0, scratch.queries, 0, kKvTokens / 16);
  }
  for (int64_t i = 0; i < scratch.queries; ++i) {
    const int64_t at = i * scratch.stride;
    scratch.sums[i] =
        SoftmaxRow(scratch.scores + at, call.scale, task.first_position + i / group + 1,
                   scratch.score_cols, scratch.probs + at);
  }
  product.a_stride = scratch.stride;
  product.panel_bytes = KvValuePanelBytes(sizeof(T));
  product.n = scratch.out_cols;
  product.c = scratch.out;
  product.c_stride = scratch.out_cols;
  const int64_t keys = (task.first_position + task.rows + 1) / 2 * 2;
  for (int64_t tile = 0; tile < scratch.tiles; ++tile) {
    product.a = scratch.probs + tile * kKvTokens;
    product.b = kv_head(tile) + key_bytes;
    if (task.rows == 1 && tile + 1 < scratch.tiles) {
      PrefetchTile(kv_head(tile + 1) + key_bytes, kKvTokens * scratch.out_cols * sizeof(T));
    }
    product.k = Smaller(kKvTokens, keys - tile * kKvTokens);
    product.output = tile == 0 ? GemmCall::Output::kFloat : GemmCall::Output::kAccumulate;
    gemm.Run(product, 0, scratch.queries, 0, scratch.out_cols / 16);
  }
  for (int64_t i = 0; i < scratch.queries; ++i) {
    const int64_t head = task.kv_head * group + i % group;
    T* out = static_cast<T*>(call.out) + (task.first_row + i / group) * call.out_stride +
             head * call.head_dim;
    const F32x16 inverse = Set1(1.0f / scratch.sums[i]);
    for (int64_t d = 0; d < call.head_dim; d += 16) {
      const F32x16 sum = Load(scratch.out + i * scratch.out_cols + d);
      StoreUpTo(out + d, Fma(sum, inverse, Zero()), call.head_dim - d);
    }
  }
}

}  // namespace
}  // namespace tandem
