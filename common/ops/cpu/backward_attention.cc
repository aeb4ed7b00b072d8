// Gradients of attention and RoPE. A task is one sequence and KV head; it goes over blocks of
// queries, recomputes their scores, and never holds more than a block's rows of the n x n matrix.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"
#include "common/ops/cpu/backward_ops.h"
#include "common/ops/cpu/panels.h"

namespace tandem {
namespace {
// Queries of a block. Even: their pairs are those of the whole sequence.
constexpr int64_t kQueryBlock = 64;

int64_t Round16(int64_t n) { return (n + 15) / 16 * 16; }
// Elements between rows of a block's scores: not a power of two, see AttentionScratch.
int64_t BlockStride(int64_t keys) { return Round16(keys) + 32; }

// Scratch of one task, for a sequence of `rows` rows.
struct HeadScratch {
  std::byte *k_rows, *v_rows, *k_cols;  // K and V in panels
  std::byte *q_cols, *dout_cols;        // a block's queries and output gradients in panels
  float *dk, *dv;                       // [rows, head_dim]
  float *scores, *dp;                   // [block, BlockStride]
  std::byte *p, *ds;                    // the same in the compute dtype
  std::byte* transposed;                // P or dS of a block in panels
  int64_t bytes;

  HeadScratch(int64_t rows, int64_t head_dim, int64_t element_bytes, std::byte* memory) {
    ScratchLayout layout(memory);
    const int64_t block_elements = kQueryBlock * BlockStride(rows);
    const auto panels = [&](int64_t lanes, int64_t summed) {
      return layout.Take<std::byte>(PanelsBytes(lanes, summed, element_bytes));
    };
    k_rows = panels(rows, head_dim);
    v_rows = panels(rows, head_dim);
    k_cols = panels(head_dim, rows);
    q_cols = panels(head_dim, kQueryBlock);
    dout_cols = panels(head_dim, kQueryBlock);
    dk = layout.Take<float>(rows * head_dim);
    dv = layout.Take<float>(rows * head_dim);
    scores = layout.Take<float>(block_elements);
    dp = layout.Take<float>(block_elements);
    p = layout.Take<std::byte>(block_elements * element_bytes);
    ds = layout.Take<std::byte>(block_elements * element_bytes);
    transposed = panels(rows, kQueryBlock);
    bytes = layout.bytes();
  }
};

}  // namespace

struct CpuBackwardOps::AttentionArgs {
  Matrix qkv;
  AttentionShape shape;
  Matrix out, dout, dqkv;
  float scale;
};

namespace {

// One block of queries of one head.
struct QueryBlock {
  int64_t row = 0;    // first row in the matrices
  int64_t first = 0;  // first position
  int64_t count = 0;
  int64_t col = 0;  // first column of the head
  int64_t keys() const { return first + count; }
};

// sums [keys, head_dim] += weightsᵀ x over a block's queries; weights [count, keys].
void AddTransposedProduct(const KernelSet& kernels,
                          int64_t element_bytes,
                          const QueryBlock& block,
                          const std::byte* weights,
                          const std::byte* x_cols,
                          int64_t head_dim,
                          std::byte* panels,
                          float* sums) {
  const int64_t cols = Round16(block.keys()), stride = BlockStride(block.keys());
  PackColumnPanels({weights, block.count, cols, stride, element_bytes}, 0, cols / 16, panels);
  GemmCall call;
  call.a = panels;
  call.a_panel_bytes = call.panel_bytes = PanelBytes(block.count, element_bytes);
  call.b = x_cols;
  call.k = block.count;
  call.n = head_dim;
  call.c = sums;
  call.c_stride = head_dim;
  call.output = GemmCall::Output::kAccumulate;
  kernels.gemm(call, 0, block.keys(), 0, (head_dim + 15) / 16);
}

}  // namespace

void CpuBackwardOps::AttentionHead(const AttentionArgs& args,
                                   const AttentionSpan& span,
                                   int64_t kv_head,
                                   std::byte* memory) {
  const int64_t dim = args.shape.head_dim, group = args.shape.heads / args.shape.kv_heads;
  const int64_t k_col = args.shape.q_cols() + kv_head * dim;
  const int64_t v_col = k_col + args.shape.kv_heads * dim;
  const HeadScratch scratch(span.rows, dim, element_bytes_, memory);
  const auto source = [&](Matrix matrix, int64_t row, int64_t rows, int64_t col) {
    return PanelSource{Row(matrix, row, col), rows, dim, matrix.stride, element_bytes_};
  };
  const int64_t dim_panels = (dim + 15) / 16;
  PackRowPanels(source(args.qkv, span.first_row, span.rows, k_col), scratch.k_rows);
  PackRowPanels(source(args.qkv, span.first_row, span.rows, v_col), scratch.v_rows);
  PackColumnPanels(source(args.qkv, span.first_row, span.rows, k_col), 0, dim_panels,
                   scratch.k_cols);
  std::memset(scratch.dk, 0, static_cast<size_t>(span.rows * dim) * sizeof(float));
  std::memset(scratch.dv, 0, static_cast<size_t>(span.rows * dim) * sizeof(float));

  const auto block_gradients = [&](const QueryBlock& block) {
    const int64_t cols = Round16(block.keys()), stride = BlockStride(block.keys());
    GemmCall call;  // scores = Q Kᵀ, then dP = dO Vᵀ
    call.a = Row(args.qkv, block.row, block.col);
    call.a_stride = args.qkv.stride;
    call.b = scratch.k_rows;
    call.panel_bytes = PanelBytes(dim, element_bytes_);
    call.k = dim;
    call.n = cols;
    call.c = scratch.scores;
    call.c_stride = stride;
    call.output = GemmCall::Output::kFloat;
    kernels_.gemm(call, 0, block.count, 0, cols / 16);
    call.a = Row(args.dout, block.row, block.col);
    call.a_stride = args.dout.stride;
    call.b = scratch.v_rows;
    call.c = scratch.dp;
    kernels_.gemm(call, 0, block.count, 0, cols / 16);
    for (int64_t i = 0; i < block.count; ++i) {
      SoftmaxBackRow row;
      row.scores = scratch.scores + i * stride;
      row.dp = scratch.dp + i * stride;
      row.scale = args.scale;
      row.delta = kernels_.dot(Row(args.dout, block.row + i, block.col),
                               Row(args.out, block.row + i, block.col), dim);
      row.keys = block.first + i + 1;
      row.cols = cols;
      row.p = scratch.p + i * stride * element_bytes_;
      row.ds = scratch.ds + i * stride * element_bytes_;
      kernels_.softmax_back(row);
    }
    call.a = scratch.ds;  // dQ = dS K
    call.a_stride = stride;
    call.b = scratch.k_cols;
    call.panel_bytes = PanelBytes(span.rows, element_bytes_);
    call.k = block.keys();
    call.n = dim;
    call.c = Row(args.dqkv, block.row, block.col);
    call.c_stride = args.dqkv.stride;
    call.output = GemmCall::Output::kRounded;
    kernels_.gemm(call, 0, block.count, 0, dim_panels);
    PackColumnPanels(source(args.qkv, block.row, block.count, block.col), 0, dim_panels,
                     scratch.q_cols);
    PackColumnPanels(source(args.dout, block.row, block.count, block.col), 0, dim_panels,
                     scratch.dout_cols);
    AddTransposedProduct(kernels_, element_bytes_, block, scratch.ds, scratch.q_cols, dim,
                         scratch.transposed, scratch.dk);
    AddTransposedProduct(kernels_, element_bytes_, block, scratch.p, scratch.dout_cols, dim,
                         scratch.transposed, scratch.dv);
  };

  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int64_t first = 0; first < span.rows; first += kQueryBlock) {
      const int64_t count = std::min(kQueryBlock, span.rows - first);
      block_gradients({span.first_row + first, first, count, head * dim});
    }
  }
  for (int64_t row = 0; row < span.rows; ++row) {
    kernels_.round(scratch.dk + row * dim, dim, Row(args.dqkv, span.first_row + row, k_col));
    kernels_.round(scratch.dv + row * dim, dim, Row(args.dqkv, span.first_row + row, v_col));
  }
}

void CpuBackwardOps::Attention(Matrix qkv,
                               const AttentionShape& shape,
                               const std::vector<AttentionSpan>& spans,
                               Matrix out,
                               Matrix dout,
                               Matrix dqkv) {
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  const AttentionArgs args = {qkv, shape, out, dout, dqkv, scale};
  const int64_t tasks = static_cast<int64_t>(spans.size()) * shape.kv_heads;
  pool_.ParallelFor(tasks, [&](int64_t task, int thread) {
    const AttentionSpan& span = spans[static_cast<size_t>(task / shape.kv_heads)];
    TANDEM_CHECK(span.first_position == 0, "attention's backward needs whole sequences");
    const int64_t bytes = HeadScratch(span.rows, shape.head_dim, element_bytes_, nullptr).bytes;
    AttentionHead(args, span, task % shape.kv_heads,
                  thread_scratch_[static_cast<size_t>(thread)].Bytes(bytes));
  });
}

void CpuBackwardOps::Rope(Matrix dqkv,
                          const AttentionShape& shape,
                          const RopeTable& rope,
                          const std::vector<AttentionSpan>& spans) {
  for (const AttentionSpan& span : spans) {
    pool_.ParallelRows(span.rows, 16, [&](int64_t first, int64_t last, int) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t at = (span.first_position + i) * rope.half_dim;
        for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
          kernels_.rope_back(Row(dqkv, span.first_row + i, head * shape.head_dim),
                             rope.cos.data() + at, rope.sin.data() + at, rope.half_dim);
        }
      }
    });
  }
}

}  // namespace tandem
