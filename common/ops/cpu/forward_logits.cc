// The LM head with log-softmax: token log-probs and sampling. Tasks are vocabulary chunks of a
// block of rows; the statistics of a chunk are taken while its logits are in cache.
#include <algorithm>

#include "common/base/check.h"
#include "common/ops/cpu/forward_ops.h"
#include "common/ops/cpu/gemm_driver.h"
#include "common/ops/cpu/sample_row.h"
#include "common/ops/cpu/vocab_chunks.h"
#include "common/ops/packed_weight.h"

namespace tandem {
namespace {
// Rows whose logits of one chunk fit L2 beside the chunk's weights.
constexpr int64_t kScoreRows = 128;
// Rows of which Sample keeps all logits.
constexpr int64_t kSampleRows = 64;

Matrix RowsOf(Matrix matrix, int64_t first, int64_t rows, int64_t element_bytes) {
  matrix.data = static_cast<std::byte*>(matrix.data) + first * matrix.stride * element_bytes;
  matrix.rows = rows;
  return matrix;
}
}  // namespace

GemmCall CpuForwardOps::ChunkGemm(Matrix hidden,
                                  const LinearWeight& head,
                                  int64_t chunk,
                                  int64_t cols) const {
  GemmCall call;
  call.a = hidden.data;
  call.a_stride = hidden.stride;
  call.panel_bytes = PackedBytes(16, head.cols, dtype_);
  call.b = head.packed + chunk * (kVocabChunk / 16) * call.panel_bytes;
  call.k = head.cols;
  call.n = cols;
  if (head.bias != nullptr) {
    call.bias = static_cast<const std::byte*>(head.bias) + chunk * kVocabChunk * element_bytes_;
  }
  call.output = GemmCall::Output::kFloat;
  return call;
}

void CpuForwardOps::TokenLogProbs(Matrix hidden,
                                  const LinearWeight& head,
                                  int64_t vocab_limit,
                                  const int32_t* targets,
                                  const float* temperatures,
                                  float* log_probs,
                                  float* entropy) {
  TANDEM_CHECK(vocab_limit >= 1 && vocab_limit <= head.rows, "vocab_limit outside the head");
  const int64_t chunks = VocabChunks(vocab_limit);
  const int64_t row_blocks = (hidden.rows + kScoreRows - 1) / kScoreRows;
  ChunkStats* stats = chunk_stats_.Get<ChunkStats>(hidden.rows * chunks);
  pool_.ParallelFor(row_blocks * chunks, [&](int64_t task, int thread) {
    // Neighbouring tasks share the chunk's weights.
    const int64_t chunk = task / row_blocks, block = task % row_blocks;
    const int64_t first = hidden.rows * block / row_blocks;
    const int64_t rows = hidden.rows * (block + 1) / row_blocks - first;
    const int64_t cols = ChunkColumns(chunk, vocab_limit);
    float* logits = thread_scratch_[static_cast<size_t>(thread)].Get<float>(rows * kVocabChunk);
    GemmCall call = ChunkGemm(RowsOf(hidden, first, rows, element_bytes_), head, chunk, cols);
    call.c = logits;
    call.c_stride = kVocabChunk;
    kernels_.gemm(call, 0, rows, 0, (cols + 15) / 16);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = first + i;
      const float* row_logits = logits + i * kVocabChunk;
      kernels_.chunk_stats(row_logits, cols, ScoringTemperature(temperatures[row]),
                           &stats[row * chunks + chunk]);
      const int64_t target = targets[row] - chunk * kVocabChunk;
      if (target >= 0 && target < cols) log_probs[row] = row_logits[target];
    }
  });
  pool_.ParallelRows(hidden.rows, kScoreRows, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      TANDEM_CHECK(targets[row] >= 0 && targets[row] < vocab_limit, "target outside vocab_limit");
      RowStats sums;
      kernels_.combine_chunks(stats + row * chunks, chunks, &sums);
      log_probs[row] = LogProb(log_probs[row], ScoringTemperature(temperatures[row]), sums);
      if (entropy != nullptr) entropy[row] = sums.entropy;
    }
  });
}

void CpuForwardOps::Sample(Matrix hidden,
                           const LinearWeight& head,
                           int64_t vocab_limit,
                           const std::vector<SampleRow>& rows,
                           SampledToken* out) {
  TANDEM_CHECK(vocab_limit >= 1 && vocab_limit <= head.rows, "vocab_limit outside the head");
  TANDEM_CHECK(static_cast<int64_t>(rows.size()) == hidden.rows, "one SampleRow per row");
  const int64_t chunks = VocabChunks(vocab_limit);
  const int64_t stride = chunks * kVocabChunk;
  for (int64_t first = 0; first < hidden.rows; first += kSampleRows) {
    const int64_t count = std::min(kSampleRows, hidden.rows - first);
    float* logits = logits_.Get<float>(count * stride);
    ChunkStats* stats = chunk_stats_.Get<ChunkStats>(count * chunks);
    const SampleRow* block = rows.data() + first;
    pool_.ParallelFor(chunks, [&](int64_t chunk, int) {
      const int64_t cols = ChunkColumns(chunk, vocab_limit);
      GemmCall call = ChunkGemm(RowsOf(hidden, first, count, element_bytes_), head, chunk, cols);
      call.c = logits + chunk * kVocabChunk;
      call.c_stride = stride;
      kernels_.gemm(call, 0, count, 0, (cols + 15) / 16);
      for (int64_t i = 0; i < count; ++i) {
        kernels_.chunk_stats(logits + i * stride + chunk * kVocabChunk, cols,
                             ScoringTemperature(block[i].temperature), &stats[i * chunks + chunk]);
      }
    });
    pool_.ParallelFor(count, [&](int64_t i, int thread) {
      float* scratch = thread_scratch_[static_cast<size_t>(thread)].Get<float>(kVocabChunk);
      RowStats sums;
      kernels_.combine_chunks(stats + i * chunks, chunks, &sums);
      SampledToken& chosen = out[first + i];
      chosen.token = ChooseToken(kernels_, block[i], logits + i * stride, vocab_limit,
                                 stats + i * chunks, sums, scratch);
      chosen.log_prob = LogProb(logits[i * stride + chosen.token],
                                ScoringTemperature(block[i].temperature), sums);
    });
  }
}

void CpuForwardOps::Logits(Matrix hidden, const LinearWeight& head, FloatMatrix out) {
  TANDEM_CHECK(out.cols == head.rows && hidden.cols == head.cols && hidden.rows == out.rows,
               "shapes of Logits do not match");
  GemmCall call = ChunkGemm(hidden, head, 0, head.rows);
  call.c = out.data;
  call.c_stride = out.stride;
  RunGemm(pool_, kernels_, call, hidden.rows);
}

}  // namespace tandem
