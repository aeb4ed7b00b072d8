#include "common/ops/cpu/backward/logits.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/ops/cpu/gemm_driver.h"
#include "common/ops/cpu/packed_weight.h"
#include "common/ops/cpu/sample_row.h"
#include "common/ops/numerics_layout.h"

namespace tandem {
namespace {
// Rows of a block: many, because every block passes over dhead once. Even, as kSumBlock is.
constexpr int64_t kBlockRows = 1024;
// Rows of a task inside a block: their logits of one chunk stay in L2.
constexpr int64_t kTaskRows = 64;
}  // namespace

struct LogitsBackward::LogitsArgs {
  const LinearWeight& head;
  int64_t vocab_limit;
  // The inputs of the block's rows.
  Matrix hidden;
  const int32_t* targets;
  const float* temperatures;
  const RowStats* stats;
  const float* grad_log_probs;
  const float* grad_entropy;
  Matrix dhidden;
  float* dhead;
  const std::byte* hidden_panels;
  std::byte* dlogits;  // [rows, kVocabChunk]
  float* dhidden_sums;

  int64_t row_tasks() const { return (hidden.rows + kTaskRows - 1) / kTaskRows; }
  int64_t task_rows(int64_t task) const {
    return std::min(kTaskRows, hidden.rows - task * kTaskRows);
  }
  // Computes fp32 logits of a chunk into [rows, kVocabChunk].
  GemmCall LogitsCall(int64_t chunk, float* logits, DType dtype) const {
    GemmCall call;
    call.a = hidden.data;
    call.a_stride = hidden.stride;
    call.panel_bytes = PackedBytes(16, head.cols, dtype);
    call.b = head.values + chunk * (kVocabChunk / 16) * call.panel_bytes;
    call.k = head.cols;
    call.n = ChunkColumns(chunk, vocab_limit);
    call.c = logits;
    call.c_stride = kVocabChunk;
    if (head.bias != nullptr) {
      call.bias = static_cast<const std::byte*>(head.bias) +
                  chunk * kVocabChunk * static_cast<int64_t>(DTypeBytes(dtype));
    }
    call.output = GemmCall::Output::kFloat;
    return call;
  }
};

void LogitsBackward::LogitsChunk(const LogitsArgs& args, int64_t chunk) {
  const int64_t cols = ChunkColumns(chunk, args.vocab_limit), dim = args.head.cols;
  const int64_t padded_cols = (cols + 15) / 16 * 16;
  std::byte* transposed =
      context_.weight_panels.Bytes(PanelsBytes(dim, padded_cols, context_.element_bytes));
  context_.pool->ParallelRows((dim + 15) / 16, 4, [&](int64_t first, int64_t last, int) {
    const GemmCall call = args.LogitsCall(chunk, nullptr, context_.dtype);
    TransposePackedWeight(call.b, cols, dim, context_.element_bytes, first, last, transposed);
  });
  context_.pool->ParallelFor(args.row_tasks(), [&](int64_t task, int thread) {
    const int64_t first = task * kTaskRows, count = args.task_rows(task);
    float* logits =
        context_.thread_scratch[static_cast<size_t>(thread)].Get<float>(kTaskRows * kVocabChunk);
    GemmCall call = args.LogitsCall(chunk, logits, context_.dtype);
    call.a = context_.Row(args.hidden, first);
    context_.kernels.gemm(call, 0, count, 0, padded_cols / 16);
    std::byte* dlogits = args.dlogits + first * kVocabChunk * context_.element_bytes;
    for (int64_t i = 0; i < count; ++i) {
      LogitsBackRow row;
      row.logits = logits + i * kVocabChunk;
      row.cols = cols;
      row.target = args.targets[first + i] - chunk * kVocabChunk;
      row.inverse_temperature = InverseTemperature(args.temperatures[first + i]);
      row.stats = args.stats[first + i];
      row.grad_log_prob = args.grad_log_probs[first + i];
      row.grad_entropy = args.grad_entropy == nullptr ? 0.0f : args.grad_entropy[first + i];
      row.dlogits = dlogits + i * kVocabChunk * context_.element_bytes;
      context_.kernels.logits_back(row);
    }
    GemmCall into_hidden;
    into_hidden.a = dlogits;
    into_hidden.a_stride = kVocabChunk;
    into_hidden.b = transposed;
    into_hidden.panel_bytes = PanelBytes(padded_cols, context_.element_bytes);
    into_hidden.k = cols;
    into_hidden.n = dim;
    into_hidden.c = args.dhidden_sums + first * dim;
    into_hidden.c_stride = dim;
    into_hidden.output = GemmCall::Output::kAccumulate;
    context_.kernels.gemm(into_hidden, 0, count, 0, (dim + 15) / 16);
  });
  if (args.dhead == nullptr) return;
  const Matrix dlogits = {args.dlogits, args.hidden.rows, cols, kVocabChunk};
  context_.AddWeightProduct(context_.PackColumns(dlogits, context_.dout_panels), cols,
                            args.hidden_panels, dim, args.hidden.rows,
                            args.dhead + chunk * kVocabChunk * dim);
}

void LogitsBackward::LogitsRowBlock(const LogitsArgs& args) {
  const int64_t dim = args.head.cols;
  std::memset(args.dhidden_sums, 0, static_cast<size_t>(args.hidden.rows * dim) * sizeof(float));
  for (int64_t chunk = 0; chunk < VocabChunks(args.vocab_limit); ++chunk) LogitsChunk(args, chunk);
  context_.Round({args.dhidden_sums, args.hidden.rows, dim, dim}, args.dhidden);
}

void LogitsBackward::TokenLogProbs(Matrix hidden,
                                   const LinearWeight& head,
                                   int64_t vocab_limit,
                                   const int32_t* targets,
                                   const float* temperatures,
                                   const RowStats* stats,
                                   const float* grad_log_probs,
                                   const float* grad_entropy,
                                   Matrix dhidden,
                                   float* dhead) {
  TANDEM_CHECK(vocab_limit >= 1 && vocab_limit <= head.rows, "vocab_limit outside the head");
  TANDEM_CHECK(hidden.cols == head.cols && dhidden.cols == head.cols,
               "shapes of TokenLogProbs do not match");
  for (int64_t first = 0; first < hidden.rows; first += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, hidden.rows - first);
    const Matrix block = {context_.Row(hidden, first), rows, hidden.cols, hidden.stride};
    LogitsRowBlock({head,
                    vocab_limit,
                    block,
                    targets + first,
                    temperatures + first,
                    stats + first,
                    grad_log_probs + first,
                    grad_entropy == nullptr ? nullptr : grad_entropy + first,
                    {context_.Row(dhidden, first), rows, dhidden.cols, dhidden.stride},
                    dhead,
                    context_.PackColumns(block, context_.in_panels),
                    dlogits_.Bytes(rows * kVocabChunk * context_.element_bytes),
                    dhidden_.Get<float>(rows * head.cols)});
  }
}

void LogitsBackward::Embed(const int32_t* ids, FloatMatrix dx, float* dtable) {
  RowSumCall call;
  call.x = dx.data;
  call.x_stride = dx.stride;
  call.rows = dx.rows;
  call.ids = ids;
  call.sums = dtable;
  call.sums_stride = dx.cols;
  context_.ParallelColumns(dx.cols, [&](int64_t col0, int64_t col1) {
    context_.kernels.add_float_rows(call, col0, col1);
  });
}

}  // namespace tandem
