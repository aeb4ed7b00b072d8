// Causal attention of a few rows over the paged KV of their sequences. First all scores are
// computed, then the softmax, then P·V from position 0 in tiles of 64 keys. Each (row, head)
// depends only on its query and the keys and values up to its position: later keys get P = 0
// exactly, and a final + 0 turns a -0 that such a key could leave into +0. If sequences begin with
// the same blocks, their rows pass over those blocks together.
#pragma once

#include "common/ops/cpu/kernels/gemm.h"
#include "common/ops/numerics_layout.h"

namespace tandem {
namespace {

TANDEM_INLINE int64_t TilesOf(const AttentionRows& rows) {
  return KvBlocksFor(rows.first_position + rows.rows);
}

// Scratch of a task: queries, scores and probabilities of its rows, and output accumulators.
template <typename T>
struct AttentionScratch {
  int64_t queries = 0, score_cols = 0, out_cols;
  // Elements between rows of scores and probs. Not a power of two, or all rows would use the same
  // cache sets.
  int64_t stride;
  T* q;
  float* scores;
  T* probs;
  float* sums;
  float* out;
  int64_t bytes = 0;

  AttentionScratch(const AttentionCall& call, const AttentionTask& task, std::byte* memory) {
    for (int64_t i = 0; i < task.count; ++i) {
      queries += task.rows[i].rows * (call.heads / call.kv_heads);
      score_cols = Larger(score_cols, TilesOf(task.rows[i]) * kKvTokens);
    }
    stride = score_cols + 32;
    out_cols = KvPaddedDim(call.head_dim);
    scores = Take<float>(memory, queries * stride);
    out = Take<float>(memory, queries * out_cols);
    sums = Take<float>(memory, queries);
    probs = Take<T>(memory, queries * stride);
    q = Take<T>(memory, queries * call.head_dim);
  }

 private:
  // Like ScratchLayout, which would have external linkage here.
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

// Computes exp(scores * scale - max) of the first n scores, rounded into probs, with zeros up to
// `cols`, a multiple of 32. Returns the sum before rounding.
template <typename T>
float SoftmaxRow(const float* scores, float scale, int64_t n, int64_t cols, T* probs) {
  const int64_t whole = n / 16 * 16;
  F32x16 highest = Set1(-__builtin_inff());
  for (int64_t i = 0; i < whole; i += 16) highest = Max(highest, Load(scores + i));
  if (whole < n) {
    highest = Max(highest, KeepFirst(Load(scores + whole), n - whole, -__builtin_inff()));
  }
  // Rounded twice, like the maximum, so that no difference is above zero.
  const F32x16 factor = Set1(scale), max = Set1(MaxLanes(highest) * scale);
  const auto weight = [&](int64_t i) __attribute__((always_inline)) {
    return Exp(Sub(Mul(Load(scores + i), factor), max));
  };
  F32x16 sum = Zero();
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const F32x16 low = weight(i), high = weight(i + 16);
    sum = Add(Add(sum, low), high);
    StorePair(probs + i, low, high);
  }
  if (i < n) {
    const F32x16 low = KeepFirst(weight(i), Smaller<int64_t>(n - i, 16), 0.0f);
    const F32x16 high = n - i > 16 ? KeepFirst(weight(i + 16), n - i - 16, 0.0f) : Zero();
    sum = Add(Add(sum, low), high);
    StorePair(probs + i, low, high);
    i += 32;
  }
  for (; i < cols; i += 32) StorePair(probs + i, Zero(), Zero());
  return SumLanes(sum);
}

// Runs one task. The queries of its rows are ordered [rows][heads of the group].
template <typename T>
class AttentionKernel {
 public:
  AttentionKernel(const AttentionCall& call, const AttentionTask& task, std::byte* memory)
      : call_(call),
        task_(task),
        scratch_(call, task, memory),
        group_(call.heads / call.kv_heads),
        key_bytes_(KvKeyBytes(call.head_dim, sizeof(T))) {}

  void Run() {
    CopyQueries();
    Scores();
    int64_t query = 0;
    ForEachRow([&](const AttentionRows& rows, int64_t row) {
      const int64_t keys = rows.first_position + row + 1;
      const int64_t cols = TilesOf(rows) * kKvTokens;
      for (const int64_t end = query + group_; query < end; ++query) {
        const int64_t at = query * scratch_.stride;
        scratch_.sums[query] =
            SoftmaxRow(scratch_.scores + at, call_.scale, keys, cols, scratch_.probs + at);
      }
    });
    Values();
    Store();
  }

 private:
  template <typename Visit>
  TANDEM_INLINE void ForEachRow(const Visit& visit) const {
    for (int64_t i = 0; i < task_.count; ++i) {
      for (int64_t row = 0; row < task_.rows[i].rows; ++row) visit(task_.rows[i], row);
    }
  }

  // Calls visit(tile, first query, last query, one of the sequences they belong to); the tiles of a
  // query are visited in ascending order.
  template <typename Visit>
  TANDEM_INLINE void ForEachTile(const Visit& visit) const {
    for (int64_t tile = 0; tile < task_.shared_tiles; ++tile) {
      visit(tile, 0, scratch_.queries, task_.rows[0]);
    }
    int64_t query = 0;
    for (int64_t i = 0; i < task_.count; ++i) {
      const AttentionRows& rows = task_.rows[i];
      const int64_t end = query + rows.rows * group_;
      for (int64_t tile = task_.shared_tiles; tile < TilesOf(rows); ++tile) {
        visit(tile, query, end, rows);
      }
      query = end;
    }
  }

  const std::byte* KvHead(const AttentionRows& rows, int64_t tile) const {
    return call_.kv + rows.blocks[tile] * call_.kv_block_bytes +
           task_.kv_head * KvHeadBytes(call_.head_dim, sizeof(T));
  }

  void CopyQueries() {
    const T* qkv = static_cast<const T*>(call_.qkv) + task_.kv_head * group_ * call_.head_dim;
    const int64_t count = group_ * call_.head_dim;
    T* to = scratch_.q;
    ForEachRow([&](const AttentionRows& rows, int64_t row) {
      const T* from = qkv + (rows.first_row + row) * call_.qkv_stride;
      __builtin_memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
      to += count;
    });
  }

  void Scores() {
    GemmCall product;
    product.a = scratch_.q;
    product.a_stride = call_.head_dim;
    product.panel_bytes = KvKeyPanelBytes(call_.head_dim, sizeof(T));
    product.k = call_.head_dim;
    product.n = kKvTokens;
    product.c_stride = scratch_.stride;
    product.output = GemmCall::Output::kFloat;
    ForEachTile([&](int64_t tile, int64_t q0, int64_t q1, const AttentionRows& rows) {
      product.b = KvHead(rows, tile);
      product.c = scratch_.scores + tile * kKvTokens;
      gemm_.Run(product, q0, q1, 0, kKvTokens / 16);
    });
  }

  void Values() {
    constexpr int64_t kUnit = GemmContext<T>::kSumUnit;
    GemmCall product;
    product.a_stride = scratch_.stride;
    product.panel_bytes = KvValuePanelBytes(sizeof(T));
    product.n = scratch_.out_cols;
    product.c = scratch_.out;
    product.c_stride = scratch_.out_cols;
    ForEachTile([&](int64_t tile, int64_t q0, int64_t q1, const AttentionRows& rows) {
      const int64_t keys = (rows.first_position + rows.rows + kUnit - 1) / kUnit * kUnit;
      product.a = scratch_.probs + tile * kKvTokens;
      product.b = KvHead(rows, tile) + key_bytes_;
      product.k = Smaller(kKvTokens, keys - tile * kKvTokens);
      product.output = tile == 0 ? GemmCall::Output::kFloat : GemmCall::Output::kAccumulate;
      gemm_.Run(product, q0, q1, 0, scratch_.out_cols / 16);
    });
  }

  void Store() {
    const int64_t dim = call_.head_dim, cols = scratch_.out_cols, heads = group_;
    const float* from = scratch_.out;
    const float* sums = scratch_.sums;
    ForEachRow([&](const AttentionRows& rows, int64_t row) {
      T* out = static_cast<T*>(call_.out) + (rows.first_row + row) * call_.out_stride +
               task_.kv_head * heads * dim;
      for (int64_t head = 0; head < heads; ++head, out += dim, from += cols) {
        const F32x16 inverse = Set1(1.0f / *sums++);
        int64_t d = 0;
        for (; d + 32 <= dim; d += 32) {
          StorePair(out + d, Fma(Load(from + d), inverse, Zero()),
                    Fma(Load(from + d + 16), inverse, Zero()));
        }
        for (; d < dim; d += 16) {
          StoreUpTo(out + d, Fma(Load(from + d), inverse, Zero()), dim - d);
        }
      }
    });
  }

  const AttentionCall& call_;
  const AttentionTask& task_;
  const AttentionScratch<T> scratch_;
  const int64_t group_, key_bytes_;
  GemmContext<T> gemm_;
};

template <typename T>
void Attention(const AttentionCall& call, const AttentionTask& task, std::byte* memory) {
  AttentionKernel<T>(call, task, memory).Run();
}

}  // namespace
}  // namespace tandem
