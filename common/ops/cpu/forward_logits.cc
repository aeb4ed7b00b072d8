// The LM head with log-softmax: token log-probs and sampling. Tasks are vocabulary chunks of a
// block of rows; the statistics of a chunk are taken while its logits are in cache, and the logits
// are dropped. A draw picks a chunk by the statistics and computes the logits of that chunk again.
#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/ops/cpu/forward_ops.h"
#include "common/ops/cpu/gemm_driver.h"
#include "common/ops/cpu/packed_weight.h"
#include "common/ops/cpu/sample_row.h"
#include "common/ops/numerics_layout.h"

namespace tandem {
namespace {
// Number of rows whose logits of one chunk fit into L2 with the chunk's weights.
constexpr int64_t kScoreRows = 128;
// Rows of a task that chooses chunks.
constexpr int64_t kSampleRowGrain = 4;
// Rows that a task draws from one chunk.
constexpr size_t kDrawRows = 32;
// Number of rows of which Sample holds all logits at a time, if top-k or top-p need them.
constexpr size_t kFilteredRows = 8;

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
  call.b = head.values + chunk * (kVocabChunk / 16) * call.panel_bytes;
  call.k = head.cols;
  call.n = cols;
  if (head.bias != nullptr) {
    call.bias = static_cast<const std::byte*>(head.bias) + chunk * kVocabChunk * element_bytes_;
  }
  call.output = GemmCall::Output::kFloat;
  return call;
}

template <typename Temperature, typename Visit>
ChunkStats* CpuForwardOps::ScoreChunks(Matrix hidden,
                                       const LinearWeight& head,
                                       int64_t vocab_limit,
                                       const Temperature& temperature,
                                       const Visit& visit) {
  TANDEM_CHECK(vocab_limit >= 1 && vocab_limit <= head.rows, "vocab_limit outside the head");
  TANDEM_CHECK(hidden.cols == head.cols, "hidden states do not have the head's width");
  const int64_t chunks = VocabChunks(vocab_limit);
  const int64_t row_blocks = (hidden.rows + kScoreRows - 1) / kScoreRows;
  ChunkStats* stats = chunk_stats_.Get<ChunkStats>(hidden.rows * chunks);
  pool_->ParallelFor(row_blocks * chunks, [&](int64_t task, int thread) {
    // Neighbouring tasks use the same chunk's weights.
    const int64_t chunk = task / row_blocks, block = task % row_blocks;
    const int64_t first = hidden.rows * block / row_blocks;
    const int64_t rows = hidden.rows * (block + 1) / row_blocks - first;
    const int64_t cols = ChunkColumns(chunk, vocab_limit);
    float* logits = thread_scratch_[static_cast<size_t>(thread)].Get<float>(rows * kVocabChunk);
    GemmCall call = ChunkGemm(RowsOf(hidden, first, rows, element_bytes_), head, chunk, cols);
    call.c = logits;
    call.c_stride = kVocabChunk;
    call.b_is_cold = block == 0;
    kernels_.gemm(call, 0, rows, 0, (cols + 15) / 16);
    for (int64_t i = 0; i < rows; ++i) {
      kernels_.chunk_stats(logits + i * kVocabChunk, cols,
                           InverseTemperature(temperature(first + i)),
                           &stats[(first + i) * chunks + chunk]);
      visit(first + i, chunk, logits + i * kVocabChunk);
    }
  });
  return stats;
}

void CpuForwardOps::TokenLogProbs(Matrix hidden,
                                  const LinearWeight& head,
                                  int64_t vocab_limit,
                                  const int32_t* targets,
                                  const float* temperatures,
                                  float* log_probs,
                                  RowStats* stats) {
  counts_.Add(ForwardOp::kTokenLogProbs, hidden.rows);
  const int64_t chunks = VocabChunks(vocab_limit);
  const ChunkStats* chunk_stats = ScoreChunks(
      hidden, head, vocab_limit, [&](int64_t row) { return temperatures[row]; },
      [&](int64_t row, int64_t chunk, const float* logits) {
        const int64_t target = targets[row] - chunk * kVocabChunk;
        if (target >= 0 && target < kVocabChunk) log_probs[row] = logits[target];
      });
  pool_->ParallelRows(hidden.rows, kScoreRows, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      TANDEM_CHECK(targets[row] >= 0 && targets[row] < vocab_limit, "target outside vocab_limit");
      RowStats sums;
      kernels_.combine_chunks(chunk_stats + row * chunks, chunks, &sums);
      log_probs[row] = LogProb(log_probs[row], InverseTemperature(temperatures[row]), sums);
      if (stats != nullptr) stats[row] = sums;
    }
  });
}

void CpuForwardOps::Sample(Matrix hidden,
                           const LinearWeight& head,
                           int64_t vocab_limit,
                           const std::vector<SampleRow>& rows,
                           SampledToken* out) {
  counts_.Add(ForwardOp::kSample, hidden.rows);
  TANDEM_CHECK(static_cast<int64_t>(rows.size()) == hidden.rows, "one SampleRow per row");
  const int64_t chunks = VocabChunks(vocab_limit);
  const ChunkStats* stats = ScoreChunks(
      hidden, head, vocab_limit,
      [&](int64_t row) { return rows[static_cast<size_t>(row)].temperature; },
      [](int64_t, int64_t, const float*) {});
  draws_.resize(rows.size());
  pool_->ParallelRows(hidden.rows, kSampleRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const SampleRow& row = rows[static_cast<size_t>(i)];
      Draw& draw = draws_[static_cast<size_t>(i)];
      draw.row = i;
      kernels_.combine_chunks(stats + i * chunks, chunks, &draw.stats);
      out[i].entropy = draw.stats.entropy;
      draw.choice = IsFiltered(row, vocab_limit)
                        ? ChunkChoice{chunks, 0.0}
                        : ChooseChunk(kernels_, row, stats + i * chunks, chunks, draw.stats);
    }
  });
  std::sort(draws_.begin(), draws_.end(), [](const Draw& a, const Draw& b) {
    return a.choice.chunk != b.choice.chunk ? a.choice.chunk < b.choice.chunk : a.row < b.row;
  });
  draw_groups_.clear();
  size_t end = 0;
  for (; end < draws_.size() && draws_[end].choice.chunk < chunks; ++end) {
    const size_t begin = draw_groups_.empty() ? 0 : draw_groups_.back();
    const bool same = end > begin && draws_[end].choice.chunk == draws_[begin].choice.chunk;
    if (!same || end - begin == kDrawRows) draw_groups_.push_back(end);
  }
  draw_groups_.push_back(end);
  pool_->ParallelFor(static_cast<int64_t>(draw_groups_.size()) - 1, [&](int64_t group, int thread) {
    const size_t first = draw_groups_[static_cast<size_t>(group)];
    const size_t last = draw_groups_[static_cast<size_t>(group) + 1];
    DrawInChunk({draws_.data() + first, last - first}, hidden, head, vocab_limit, rows,
                thread_scratch_[static_cast<size_t>(thread)], out);
  });
  for (size_t first = end; first < draws_.size(); first += kFilteredRows) {
    DrawFiltered({draws_.data() + first, std::min(draws_.size() - first, kFilteredRows)}, hidden,
                 head, vocab_limit, rows, out);
  }
}

void CpuForwardOps::DrawInChunk(std::span<const Draw> draws,
                                Matrix hidden,
                                const LinearWeight& head,
                                int64_t vocab_limit,
                                const std::vector<SampleRow>& rows,
                                Workspace& workspace,
                                SampledToken* out) {
  const auto count = static_cast<int64_t>(draws.size());
  const int64_t chunk = draws[0].choice.chunk, cols = ChunkColumns(chunk, vocab_limit);
  float* logits = workspace.Get<float>((count + 1) * kVocabChunk + count * hidden.cols);
  float* scratch = logits + count * kVocabChunk;
  auto* in = reinterpret_cast<std::byte*>(scratch + kVocabChunk);
  GemmCall call = ChunkGemm(GatherRows(hidden, draws, in), head, chunk, cols);
  call.c = logits;
  call.c_stride = kVocabChunk;
  kernels_.gemm(call, 0, count, 0, (cols + 15) / 16);
  for (const Draw& draw : draws) {
    const SampleRow& row = rows[static_cast<size_t>(draw.row)];
    const int64_t index =
        ChooseInChunk(kernels_, row, draw.choice, draw.stats, logits, cols, scratch);
    out[draw.row].token = static_cast<int32_t>(chunk * kVocabChunk + index);
    out[draw.row].log_prob =
        LogProb(logits[index], InverseTemperature(row.temperature), draw.stats);
    logits += kVocabChunk;
  }
}

void CpuForwardOps::DrawFiltered(std::span<const Draw> draws,
                                 Matrix hidden,
                                 const LinearWeight& head,
                                 int64_t vocab_limit,
                                 const std::vector<SampleRow>& rows,
                                 SampledToken* out) {
  const auto count = static_cast<int64_t>(draws.size());
  std::byte* in = gathered_.Bytes(count * hidden.cols * element_bytes_);
  float* logits = logits_.Get<float>(count * vocab_limit);
  GemmCall call = ChunkGemm(GatherRows(hidden, draws, in), head, 0, vocab_limit);
  call.c = logits;
  call.c_stride = vocab_limit;
  RunGemm(*pool_, kernels_, call, count);
  pool_->ParallelFor(count, [&](int64_t i, int thread) {
    const Draw& draw = draws[static_cast<size_t>(i)];
    const SampleRow& row = rows[static_cast<size_t>(draw.row)];
    float* weights = thread_scratch_[static_cast<size_t>(thread)].Get<float>(2 * vocab_limit);
    const float* row_logits = logits + i * vocab_limit;
    SampledToken& chosen = out[draw.row];
    chosen.token = ChooseFiltered(kernels_, row, draw.stats, row_logits, vocab_limit, weights,
                                  reinterpret_cast<int32_t*>(weights + vocab_limit));
    chosen.log_prob =
        LogProb(row_logits[chosen.token], InverseTemperature(row.temperature), draw.stats);
  });
}

Matrix CpuForwardOps::GatherRows(Matrix hidden, std::span<const Draw> draws, std::byte* to) {
  const int64_t row_bytes = hidden.cols * element_bytes_;
  const Matrix gathered = {to, static_cast<int64_t>(draws.size()), hidden.cols, hidden.cols};
  for (const Draw& draw : draws) {
    std::memcpy(to, Row(hidden, draw.row), static_cast<size_t>(row_bytes));
    to += row_bytes;
  }
  return gathered;
}

void CpuForwardOps::Logits(Matrix hidden, const LinearWeight& head, FloatMatrix out) {
  counts_.Add(ForwardOp::kLogits, hidden.rows);
  TANDEM_CHECK(out.cols == head.rows && hidden.cols == head.cols && hidden.rows == out.rows,
               "shapes of Logits do not match");
  GemmCall call = ChunkGemm(hidden, head, 0, head.rows);
  call.c = out.data;
  call.c_stride = out.stride;
  RunGemm(*pool_, kernels_, call, hidden.rows);
}

}  // namespace tandem
