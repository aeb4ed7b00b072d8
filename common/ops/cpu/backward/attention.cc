#include "common/ops/cpu/backward/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "common/ops/cpu/gemm_driver.h"

namespace tandem {
namespace {

// Queries of a block. Even, so that the pairs of a block are those of the complete span.
constexpr int64_t kQueryBlock = 64;
// Rows that a task rotates.
constexpr int64_t kRopeRows = 16;

int64_t Round16(int64_t n) { return (n + 15) / 16 * 16; }
// Elements between rows of a block's scores. Not a power of two, or the rows would use the same
// cache sets.
int64_t BlockStride(int64_t keys) { return Round16(keys) + 32; }

struct AttentionArgs {
  Matrix qkv;
  AttentionShape shape;
  Matrix out, dout, dqkv;
  int64_t element_bytes;
  float scale;

  std::byte* At(const Matrix& matrix, int64_t row, int64_t col) const {
    return static_cast<std::byte*>(matrix.data) + (row * matrix.stride + col) * element_bytes;
  }
};

// A sequence from position 0, and the spans that continue its first `prefix` rows.
struct Family {
  std::vector<const AttentionSpan*> spans;
  int64_t prefix = 0;
  int64_t keys = 0;  // of the longest span
};

std::vector<Family> GroupByPrefix(const std::vector<AttentionSpan>& spans) {
  std::vector<Family> families;
  for (const AttentionSpan& span : spans) {
    if (span.first_position == 0) {
      families.push_back({.spans = {&span}, .keys = span.rows});
      continue;
    }
    const auto family = std::find_if(
        families.rbegin(), families.rend(),
        [&](const Family& candidate) { return candidate.spans[0]->first_row == span.prefix_row; });
    TANDEM_CHECK(family != families.rend() && span.first_position <= family->spans[0]->rows &&
                     (family->prefix == 0 || family->prefix == span.first_position),
                 "attention's backward needs the rows of a span's prefix in an earlier span");
    family->prefix = span.first_position;
    family->keys = std::max(family->keys, span.first_position + span.rows);
    family->spans.push_back(&span);
  }
  return families;
}

// Scratch of one task, for spans of at most `keys` positions.
struct HeadScratch {
  std::byte *k, *v;                     // [keys, head_dim]: positions 0.. of the current span
  std::byte *k_rows, *v_rows, *k_cols;  // the same in panels
  std::byte *q_cols, *dout_cols;        // a block's queries and output gradients in panels
  float *dk, *dv;                       // [keys, head_dim]
  float *scores, *dp;                   // [block, BlockStride]
  std::byte *p, *ds;                    // the same in the compute dtype
  std::byte* transposed;                // P or dS of a block in panels
  int64_t bytes;

  HeadScratch(int64_t keys, int64_t head_dim, int64_t element_bytes, std::byte* memory) {
    ScratchLayout layout(memory);
    const int64_t block_elements = kQueryBlock * BlockStride(keys);
    const auto panels = [&](int64_t lanes, int64_t summed) {
      return layout.Take<std::byte>(PanelsBytes(lanes, summed, element_bytes));
    };
    k = layout.Take<std::byte>(keys * head_dim * element_bytes);
    v = layout.Take<std::byte>(keys * head_dim * element_bytes);
    k_rows = panels(keys, head_dim);
    v_rows = panels(keys, head_dim);
    k_cols = panels(head_dim, keys);
    q_cols = panels(head_dim, kQueryBlock);
    dout_cols = panels(head_dim, kQueryBlock);
    dk = layout.Take<float>(keys * head_dim);
    dv = layout.Take<float>(keys * head_dim);
    scores = layout.Take<float>(block_elements);
    dp = layout.Take<float>(block_elements);
    p = layout.Take<std::byte>(block_elements * element_bytes);
    ds = layout.Take<std::byte>(block_elements * element_bytes);
    transposed = panels(keys, kQueryBlock);
    bytes = layout.bytes();
  }
};

// One block of queries of one head.
struct QueryBlock {
  int64_t row = 0;    // first row in the matrices
  int64_t first = 0;  // first position
  int64_t count = 0;
  int64_t col = 0;  // first column of the head
  int64_t keys() const { return first + count; }
};

// The gradients of one KV head and the query heads that share it.
class KvHeadTask {
 public:
  KvHeadTask(const KernelSet& kernels,
             const AttentionArgs& args,
             int64_t kv_head,
             const HeadScratch& scratch)
      : kernels_(kernels),
        args_(args),
        scratch_(scratch),
        dim_(args.shape.head_dim),
        dim_panels_((dim_ + 15) / 16),
        kv_head_(kv_head),
        k_col_(args.shape.q_cols() + kv_head * dim_),
        v_col_(k_col_ + args.shape.kv_heads * dim_) {}

  void Run(const Family& family);

 private:
  void LoadKeys(const AttentionSpan& span);
  void Scores(const QueryBlock& block);
  void QueryGradients(const QueryBlock& block, int64_t span_keys);
  void AddTransposedProduct(const QueryBlock& block,
                            const std::byte* weights,
                            const std::byte* x_cols,
                            float* sums);
  void StoreKeyGradients(const AttentionSpan& span, int64_t begin, int64_t end);

  PanelSource Source(const void* data, int64_t rows, int64_t stride) const {
    return {data, rows, dim_, stride, args_.element_bytes};
  }

  const KernelSet& kernels_;
  const AttentionArgs& args_;
  const HeadScratch& scratch_;
  const int64_t dim_, dim_panels_, kv_head_, k_col_, v_col_;
};

void KvHeadTask::Run(const Family& family) {
  const int64_t group = args_.shape.heads / args_.shape.kv_heads;
  for (const AttentionSpan* span : family.spans) {
    const int64_t start = span->first_position, keys = start + span->rows;
    LoadKeys(*span);
    const auto fresh = static_cast<size_t>(span->rows * dim_) * sizeof(float);
    std::memset(scratch_.dk + start * dim_, 0, fresh);
    std::memset(scratch_.dv + start * dim_, 0, fresh);
    for (int64_t head = kv_head_ * group; head < (kv_head_ + 1) * group; ++head) {
      for (int64_t first = 0; first < span->rows; first += kQueryBlock) {
        const int64_t count = std::min(kQueryBlock, span->rows - first);
        QueryGradients({span->first_row + first, start + first, count, head * dim_}, keys);
      }
    }
    // Later spans still add to the gradients of the prefix, which are stored last.
    StoreKeyGradients(*span, family.prefix, keys);
  }
  StoreKeyGradients(*family.spans[0], 0, family.prefix);
}

// K and V of the span's own rows; the prefix's rows were loaded with their own span.
void KvHeadTask::LoadKeys(const AttentionSpan& span) {
  const int64_t start = span.first_position, keys = start + span.rows;
  const int64_t row_bytes = dim_ * args_.element_bytes;
  for (int64_t i = 0; i < span.rows; ++i) {
    const auto bytes = static_cast<size_t>(row_bytes);
    std::memcpy(scratch_.k + (start + i) * row_bytes,
                args_.At(args_.qkv, span.first_row + i, k_col_), bytes);
    std::memcpy(scratch_.v + (start + i) * row_bytes,
                args_.At(args_.qkv, span.first_row + i, v_col_), bytes);
  }
  const int64_t panel = start / 16, first = panel * 16;
  const int64_t panel_bytes = PanelBytes(dim_, args_.element_bytes);
  PackRowPanels(Source(scratch_.k + first * row_bytes, keys - first, dim_),
                scratch_.k_rows + panel * panel_bytes);
  PackRowPanels(Source(scratch_.v + first * row_bytes, keys - first, dim_),
                scratch_.v_rows + panel * panel_bytes);
  PackColumnPanels(Source(scratch_.k, keys, dim_), 0, dim_panels_, scratch_.k_cols);
}

// Computes scores Q Kᵀ and dP = dO Vᵀ, and from them P and dS.
void KvHeadTask::Scores(const QueryBlock& block) {
  const int64_t cols = Round16(block.keys()), stride = BlockStride(block.keys());
  GemmCall call;
  call.a = args_.At(args_.qkv, block.row, block.col);
  call.a_stride = args_.qkv.stride;
  call.b = scratch_.k_rows;
  call.panel_bytes = PanelBytes(dim_, args_.element_bytes);
  call.k = dim_;
  call.n = cols;
  call.c = scratch_.scores;
  call.c_stride = stride;
  call.output = GemmCall::Output::kFloat;
  kernels_.gemm(call, 0, block.count, 0, cols / 16);
  call.a = args_.At(args_.dout, block.row, block.col);
  call.a_stride = args_.dout.stride;
  call.b = scratch_.v_rows;
  call.c = scratch_.dp;
  kernels_.gemm(call, 0, block.count, 0, cols / 16);
  for (int64_t i = 0; i < block.count; ++i) {
    SoftmaxBackRow row;
    row.scores = scratch_.scores + i * stride;
    row.dp = scratch_.dp + i * stride;
    row.scale = args_.scale;
    row.delta = kernels_.dot(args_.At(args_.dout, block.row + i, block.col),
                             args_.At(args_.out, block.row + i, block.col), dim_);
    row.keys = block.first + i + 1;
    row.cols = cols;
    row.p = scratch_.p + i * stride * args_.element_bytes;
    row.ds = scratch_.ds + i * stride * args_.element_bytes;
    kernels_.softmax_back(row);
  }
}

void KvHeadTask::QueryGradients(const QueryBlock& block, int64_t span_keys) {
  Scores(block);
  GemmCall call;  // dQ = dS K
  call.a = scratch_.ds;
  call.a_stride = BlockStride(block.keys());
  call.b = scratch_.k_cols;
  call.panel_bytes = PanelBytes(span_keys, args_.element_bytes);
  call.k = block.keys();
  call.n = dim_;
  call.c = args_.At(args_.dqkv, block.row, block.col);
  call.c_stride = args_.dqkv.stride;
  call.output = GemmCall::Output::kRounded;
  kernels_.gemm(call, 0, block.count, 0, dim_panels_);
  PackColumnPanels(Source(args_.At(args_.qkv, block.row, block.col), block.count, args_.qkv.stride),
                   0, dim_panels_, scratch_.q_cols);
  PackColumnPanels(
      Source(args_.At(args_.dout, block.row, block.col), block.count, args_.dout.stride), 0,
      dim_panels_, scratch_.dout_cols);
  AddTransposedProduct(block, scratch_.ds, scratch_.q_cols, scratch_.dk);
  AddTransposedProduct(block, scratch_.p, scratch_.dout_cols, scratch_.dv);
}

// sums [keys, head_dim] += weightsᵀ x over a block's queries; weights [count, keys].
void KvHeadTask::AddTransposedProduct(const QueryBlock& block,
                                      const std::byte* weights,
                                      const std::byte* x_cols,
                                      float* sums) {
  const int64_t cols = Round16(block.keys()), stride = BlockStride(block.keys());
  PackColumnPanels({weights, block.count, cols, stride, args_.element_bytes}, 0, cols / 16,
                   scratch_.transposed);
  GemmCall call;
  call.a = scratch_.transposed;
  call.a_panel_bytes = call.panel_bytes = PanelBytes(block.count, args_.element_bytes);
  call.b = x_cols;
  call.k = block.count;
  call.n = dim_;
  call.c = sums;
  call.c_stride = dim_;
  call.output = GemmCall::Output::kAccumulate;
  kernels_.gemm(call, 0, block.keys(), 0, dim_panels_);
}

// Rounds dK and dV of positions [begin, end), all of them the span's own.
void KvHeadTask::StoreKeyGradients(const AttentionSpan& span, int64_t begin, int64_t end) {
  for (int64_t position = begin; position < end; ++position) {
    const int64_t row = span.first_row + position - span.first_position;
    kernels_.round(scratch_.dk + position * dim_, dim_, args_.At(args_.dqkv, row, k_col_));
    kernels_.round(scratch_.dv + position * dim_, dim_, args_.At(args_.dqkv, row, v_col_));
  }
}

}  // namespace

void AttentionBackward::Attention(Matrix qkv,
                                  const AttentionShape& shape,
                                  const std::vector<AttentionSpan>& spans,
                                  Matrix out,
                                  Matrix dout,
                                  Matrix dqkv) {
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  const AttentionArgs args = {qkv, shape, out, dout, dqkv, context_.element_bytes, scale};
  const std::vector<Family> families = GroupByPrefix(spans);
  const int64_t tasks = static_cast<int64_t>(families.size()) * shape.kv_heads;
  context_.pool->ParallelFor(tasks, [&](int64_t task, int thread) {
    const Family& family = families[static_cast<size_t>(task / shape.kv_heads)];
    const int64_t bytes =
        HeadScratch(family.keys, shape.head_dim, context_.element_bytes, nullptr).bytes;
    const HeadScratch scratch(family.keys, shape.head_dim, context_.element_bytes,
                              context_.thread_scratch[static_cast<size_t>(thread)].Bytes(bytes));
    KvHeadTask(context_.kernels, args, task % shape.kv_heads, scratch).Run(family);
  });
}

void AttentionBackward::Rope(Matrix dqkv,
                             const AttentionShape& shape,
                             const RopeTable& rope,
                             const std::vector<AttentionSpan>& spans) {
  struct Run {
    const AttentionSpan* span;
    int64_t first, last;
  };
  std::vector<Run> runs;
  for (const AttentionSpan& span : spans) {
    for (int64_t first = 0; first < span.rows; first += kRopeRows) {
      runs.push_back({&span, first, std::min(span.rows, first + kRopeRows)});
    }
  }
  context_.pool->ParallelFor(static_cast<int64_t>(runs.size()), [&](int64_t index, int) {
    const Run& run = runs[static_cast<size_t>(index)];
    for (int64_t i = run.first; i < run.last; ++i) {
      const int64_t at = (run.span->first_position + i) * rope.half_dim;
      for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
        context_.kernels.rope_back(
            context_.Row(dqkv, run.span->first_row + i, head * shape.head_dim),
            rope.cos.data() + at, rope.sin.data() + at, rope.half_dim);
      }
    }
  });
}

}  // namespace tandem
