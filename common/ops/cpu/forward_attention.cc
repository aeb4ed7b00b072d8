// RoPE, the KV store and attention: tasks are cut from spans.
#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/ops/cpu/forward_ops.h"
#include "common/ops/numerics_layout.h"

namespace tandem {
namespace {

int64_t SpanRows(const std::vector<AttentionSpan>& spans) {
  int64_t rows = 0;
  for (const AttentionSpan& span : spans) rows += span.rows;
  return rows;
}

}  // namespace

void CpuForwardOps::RopeAndStore(Matrix qkv,
                                 const AttentionShape& shape,
                                 const RopeTable& rope,
                                 const std::vector<AttentionSpan>& spans,
                                 KvLayer kv) {
  counts_.Add(ForwardOp::kRopeAndStore, SpanRows(spans));
  const int64_t head_bytes = shape.head_dim * element_bytes_;
  const int64_t kv_head_bytes = KvHeadBytes(shape.head_dim, element_bytes_);
  const int64_t block_bytes = KvBlockBytes(shape, dtype_);
  const int64_t max_positions = static_cast<int64_t>(rope.cos.size()) / rope.half_dim;
  const auto store_row = [&](const AttentionSpan& span, int64_t index) {
    const int64_t position = span.first_position + index;
    TANDEM_CHECK(position < max_positions, "position beyond the rope table");
    const int32_t block = span.blocks[position / kKvTokens];
    TANDEM_CHECK(block >= 0 && block < kv.num_blocks, "KV block outside the pool");
    std::byte* head = Row(qkv, span.first_row + index);
    const float* cos = rope.cos.data() + position * rope.half_dim;
    const float* sin = rope.sin.data() + position * rope.half_dim;
    for (int64_t h = 0; h < shape.heads + shape.kv_heads; ++h) {
      kernels_.rope(head + h * head_bytes, cos, sin, rope.half_dim);
    }
    const std::byte* k = head + shape.heads * head_bytes;
    std::byte* slot = kv.base + block * block_bytes;
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      kernels_.store_kv(k + h * head_bytes, k + (shape.kv_heads + h) * head_bytes, shape.head_dim,
                        position % kKvTokens, slot + h * kv_head_bytes);
    }
  };
  store_runs_.clear();
  for (const AttentionSpan& span : spans) {
    for (int64_t first = 0; first < span.rows;) {
      const int64_t left = kKvValueUnit - (span.first_position + first) % kKvValueUnit;
      const int64_t last = std::min(span.rows, first + left);
      store_runs_.push_back({&span, first, last});
      first = last;
    }
  }
  const auto runs = static_cast<int64_t>(store_runs_.size());
  pool_->ParallelRows(runs, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const StoreRun& run = store_runs_[static_cast<size_t>(i)];
      for (int64_t index = run.first; index < run.last; ++index) store_row(*run.span, index);
    }
  });
}

void CpuForwardOps::Attention(Matrix qkv,
                              const AttentionShape& shape,
                              const std::vector<AttentionSpan>& spans,
                              KvLayer kv,
                              Matrix out) {
  counts_.Add(ForwardOp::kAttention, out.rows);
  AttentionCall call;
  call.qkv = qkv.data;
  call.qkv_stride = qkv.stride;
  call.out = out.data;
  call.out_stride = out.stride;
  call.heads = shape.heads;
  call.kv_heads = shape.kv_heads;
  call.head_dim = shape.head_dim;
  call.kv = kv.base;
  call.kv_block_bytes = KvBlockBytes(shape, dtype_);
  call.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  attention_.Plan(spans, shape, pool_->threads());
  const int64_t groups = attention_.groups();
  pool_->ParallelFor(groups * shape.kv_heads, [&](int64_t index, int thread) {
    const AttentionTask task = attention_.Task(index / shape.kv_heads, index % shape.kv_heads);
    Workspace& scratch = thread_scratch_[static_cast<size_t>(thread)];
    kernels_.attention(call, task, scratch.Bytes(kernels_.attention_scratch(call, task)));
  });
}

}  // namespace tandem
