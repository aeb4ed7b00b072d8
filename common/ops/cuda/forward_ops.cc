#include "common/ops/cuda/forward_ops.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/memory/cuda_scratch.h"
#include "common/memory/op_sizes.h"
#include "common/ops/cuda/linear/linear.h"
#include "common/ops/cuda/rows/rows.h"
#include "common/ops/cuda/rows/sampling.h"

namespace tandem {

CudaForwardOps::CudaForwardOps(CudaContext* context, std::shared_ptr<CudaLinear> linear)
    : context_(context), linear_(std::move(linear)), attention_(context), adapters_(context) {}

std::string CudaForwardOps::numerics_class() const {
  return fmt::format("cuda-{}-{}-bf16", kernel_set(), linear_->numerics());
}

std::string CudaForwardOps::kernel_set() const {
  return fmt::format("sm{}{}", context_->info().compute_major, context_->info().compute_minor);
}

void CudaForwardOps::BeginStep(const std::vector<AttentionSpan>& spans) {
  const auto rows = static_cast<uint64_t>(spans.size());
  context_->BeginGraph(rows << 32 | static_cast<uint64_t>(AttentionSegmentBound(spans)));
}

int64_t CudaForwardOps::StepRows(int64_t rows) const { return CudaDecodeRows(rows); }

void CudaForwardOps::Embed(const int32_t* ids, const LinearWeight& table, Matrix out) {
  counts_.Add(ForwardOp::kEmbed, out.rows);
  for (int64_t row = 0; row < out.rows; ++row) {
    TANDEM_CHECK(ids[row] >= 0 && ids[row] < table.rows, "token id outside the embedding");
  }
  TakeRows({const_cast<std::byte*>(table.values), table.rows, table.cols, table.cols}, ids, out);
}

void CudaForwardOps::TakeRows(Matrix in, const int32_t* rows, Matrix out) {
  const void* const uploaded = context_->Upload(rows, out.rows * 4);
  if (!context_->launching()) return;
  LaunchTakeRows(context_->stream(), in, static_cast<const int32_t*>(uploaded), out);
}

void CudaForwardOps::RmsNorm(Matrix in, const void* weight, float eps, Matrix out) {
  counts_.Add(ForwardOp::kRmsNorm, in.rows);
  TANDEM_CHECK(in.cols <= kWidestRow, "a row is wider than the norm's kernels take");
  if (!context_->launching()) return;
  LaunchRmsNorm(context_->stream(), {.rows = in.rows, .cols = in.cols, .first = weight, .eps = eps},
                in, out);
}

void CudaForwardOps::AddRmsNorm(Matrix x, Matrix delta, const void* weight, float eps, Matrix out) {
  counts_.Add(ForwardOp::kAdd, x.rows);
  counts_.Add(ForwardOp::kRmsNorm, x.rows);
  TANDEM_CHECK(x.cols <= kWidestRow, "a row is wider than the norm's kernels take");
  if (!context_->launching()) return;
  LaunchAddRmsNorm(context_->stream(),
                   {.rows = x.rows, .cols = x.cols, .first = weight, .eps = eps}, x, delta, out);
}

void CudaForwardOps::HeadRmsNorms(Matrix qkv,
                                  const AttentionShape& shape,
                                  const void* q_weight,
                                  const void* k_weight,
                                  float eps) {
  const int64_t heads = shape.heads + shape.kv_heads;
  for (int64_t head = 0; head < heads; ++head) counts_.Add(ForwardOp::kRmsNorm, qkv.rows);
  if (!context_->launching()) return;
  LaunchRmsNorm(context_->stream(),
                {.rows = qkv.rows,
                 .heads = heads,
                 .first_heads = shape.heads,
                 .cols = shape.head_dim,
                 .first = q_weight,
                 .second = k_weight,
                 .eps = eps},
                qkv, qkv);
}

void CudaForwardOps::Linear(Matrix in, const LinearWeight& weight, Matrix out) {
  counts_.Add(ForwardOp::kLinear, in.rows);
  TANDEM_CHECK(in.cols == weight.cols && out.cols == weight.rows && in.rows == out.rows,
               "shapes of Linear do not match");
  linear_->Forward(in, weight, out);
  adapters_.AddOutput(in, weight, out);
}

void CudaForwardOps::Add(Matrix x, Matrix delta) {
  counts_.Add(ForwardOp::kAdd, x.rows);
  if (context_->launching()) LaunchAdd(context_->stream(), x, delta);
}

void CudaForwardOps::SiluMul(Matrix gate_up, Matrix out) {
  counts_.Add(ForwardOp::kSiluMul, out.rows);
  if (context_->launching()) LaunchSiluMul(context_->stream(), gate_up, out);
}

void CudaForwardOps::RopeAndStore(Matrix qkv,
                                  const AttentionShape& shape,
                                  const RopeTable& rope,
                                  const std::vector<AttentionSpan>& spans,
                                  KvLayer kv) {
  counts_.Add(ForwardOp::kRopeAndStore, qkv.rows);
  attention_.RopeAndStore(qkv, shape, rope, spans, kv);
}

void CudaForwardOps::CopyBlocks(const AttentionShape& shape,
                                const std::vector<BlockCopy>& copies,
                                KvLayer kv) {
  const int64_t bytes = KvBlockBytes(shape, compute_dtype());
  for (const BlockCopy& copy : copies) {
    context_->Copy(kv.base + copy.to * bytes, kv.base + copy.from * bytes, bytes);
  }
}

void CudaForwardOps::Attention(Matrix qkv,
                               const AttentionShape& shape,
                               const std::vector<AttentionSpan>& spans,
                               KvLayer kv,
                               Matrix out) {
  counts_.Add(ForwardOp::kAttention, qkv.rows);
  attention_.Forward(qkv, shape, spans, kv, out);
}

absl::StatusOr<std::unique_ptr<ForwardOps>> CreateCudaForwardOps(DType compute_dtype,
                                                                 CudaContext* context) {
  TANDEM_RETURN_IF_ERROR(CheckCudaComputeDtype(compute_dtype));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<CudaLinear> linear, CudaLinear::Create(context));
  std::unique_ptr<ForwardOps> ops = std::make_unique<CudaForwardOps>(context, std::move(linear));
  return ops;
}

absl::Status CheckCudaComputeDtype(DType compute_dtype) {
  if (compute_dtype == DType::kBFloat16) return absl::OkStatus();
  return FailedPrecondition(
      "model.compute_dtype is {}, and a GPU computes in BF16 only; set it to bfloat16, or "
      "trainer.device=cpu",
      DTypeName(compute_dtype));
}

// The LM head with log-softmax on a GPU. Logits are computed in groups of chunks into scratch that
// fits the last-level cache, and are summed there; a draw keeps the logits of its rows.

namespace {

// The sizes that the memory plan assumes.
static_assert(sizeof(LogitSums) == kLogitSumsBytes && sizeof(RowScore) == kRowScoreBytes &&
              sizeof(SampledToken) == kSampledTokenBytes);

void CheckHead(const Matrix& hidden, const LinearWeight& head, int64_t vocab_limit) {
  TANDEM_CHECK(vocab_limit >= 1 && vocab_limit <= head.rows, "vocab_limit outside the head");
  TANDEM_CHECK(hidden.cols == head.cols, "hidden states do not have the head's width");
  TANDEM_CHECK(head.bias == nullptr, "a head has no bias on a GPU");
}

}  // namespace

LogitsBlock CudaForwardOps::Score(Matrix hidden,
                                  const LinearWeight& head,
                                  int64_t vocab_limit,
                                  const Scoring& scoring) {
  const bool keeps = scoring.stride != kGroupIds;
  auto* const logits =
      reinterpret_cast<float*>(context_->Scratch(kLogitsSlot, scoring.logits_bytes));
  LogitsBlock block = {.logits = logits,
                       .stride = scoring.stride,
                       .rows = hidden.rows,
                       .first_chunk = 0,
                       .chunks = CudaVocabChunks(vocab_limit),
                       .vocab_limit = vocab_limit};
  const auto sum = [&] {
    if (!context_->launching()) return;
    LaunchLogitSums(context_->stream(), block, scoring.rows, scoring.sums, scoring.target_logits);
  };
  for (int64_t i = 0; i < HeadGroups(vocab_limit); ++i) {
    const HeadGroup group = HeadGroupAt(i, head.rows, vocab_limit);
    linear_->Logits(hidden, head, group.first_id, group.ids, logits + (keeps ? group.first_id : 0),
                    scoring.stride);
    if (keeps) continue;
    block.first_chunk = group.first_chunk;
    block.chunks = group.chunks;
    sum();
  }
  if (keeps) sum();
  if (context_->launching()) {
    LaunchRowScores(context_->stream(), hidden.rows, vocab_limit, scoring.rows, scoring.sums,
                    scoring.target_logits, scoring.scores);
  }
  return block;
}

void CudaForwardOps::TokenLogProbs(Matrix hidden,
                                   const LinearWeight& head,
                                   int64_t vocab_limit,
                                   const int32_t* targets,
                                   const float* temperatures,
                                   float* log_probs,
                                   RowStats* stats) {
  counts_.Add(ForwardOp::kTokenLogProbs, hidden.rows);
  CheckHead(hidden, head, vocab_limit);
  if (hidden.rows == 0) return;
  std::vector<ScoredRow> rows(static_cast<size_t>(hidden.rows));
  for (size_t i = 0; i < rows.size(); ++i) {
    TANDEM_CHECK(targets[i] >= 0 && targets[i] < vocab_limit, "target outside vocab_limit");
    rows[i] = {InverseTemperature(temperatures[i]), targets[i]};
  }
  const HeadScratch scratch = ScoreScratch(hidden.rows, vocab_limit);
  const ScoredRow* const scored = context_->Upload(rows);
  auto* const scores =
      reinterpret_cast<RowScore*>(context_->Scratch(kRowResultsSlot, scratch.results));
  auto* const target_logits = reinterpret_cast<float*>(scores + hidden.rows);
  auto* const sums = reinterpret_cast<LogitSums*>(context_->Scratch(kLogitSumsSlot, scratch.sums));
  for (int64_t first = 0; first < hidden.rows; first += kScoreRows) {
    const int64_t count = std::min(kScoreRows, hidden.rows - first);
    Score(HiddenRows(hidden, first, count), head, vocab_limit,
          {scored + first, target_logits + first, sums, scores + first, kGroupIds, scratch.logits});
  }
  std::vector<RowScore> read(rows.size());
  context_->Read(read.data(), scores, hidden.rows * static_cast<int64_t>(sizeof(RowScore)));
  for (size_t i = 0; i < read.size(); ++i) {
    log_probs[i] = read[i].log_prob;
    if (stats != nullptr) stats[i] = read[i].stats;
  }
}

void CudaForwardOps::Sample(Matrix hidden,
                            const LinearWeight& head,
                            int64_t vocab_limit,
                            const std::vector<SampleRow>& rows,
                            SampledToken* out) {
  counts_.Add(ForwardOp::kSample, hidden.rows);
  CheckHead(hidden, head, vocab_limit);
  TANDEM_CHECK(static_cast<int64_t>(rows.size()) == hidden.rows, "one SampleRow per row");
  TANDEM_CHECK(vocab_limit <= kDrawnIds, "more ids than a draw can choose from");
  for (int64_t first = 0; first < hidden.rows; first += kSampleRows) {
    const int64_t count = std::min(kSampleRows, hidden.rows - first);
    SampleRows(HiddenRows(hidden, first, count), head, vocab_limit, rows.data() + first,
               out + first);
  }
}

void CudaForwardOps::SampleRows(Matrix hidden,
                                const LinearWeight& head,
                                int64_t vocab_limit,
                                const SampleRow* rows,
                                SampledToken* out) {
  std::vector<DrawRow> draws;
  std::vector<ScoredRow> scored;
  for (int64_t i = 0; i < hidden.rows; ++i) {
    draws.push_back(MakeDrawRow(rows[i], vocab_limit));
    scored.push_back({draws.back().inverse_temperature, -1});
  }
  const DrawRow* const draws_there = context_->Upload(draws);
  const ScoredRow* const scored_there = context_->Upload(scored);
  const HeadScratch scratch = SampleScratch(hidden.rows, head.rows, vocab_limit);
  auto* const scores =
      reinterpret_cast<RowScore*>(context_->Scratch(kRowResultsSlot, scratch.results));
  auto* const tokens = reinterpret_cast<SampledToken*>(scores + hidden.rows);
  auto* const sums = reinterpret_cast<LogitSums*>(context_->Scratch(kLogitSumsSlot, scratch.sums));
  const LogitsBlock block = Score(
      hidden, head, vocab_limit,
      {scored_there, nullptr, sums, scores, AllIdsStride(head.rows, vocab_limit), scratch.logits});
  if (context_->launching()) {
    LaunchDraws(context_->stream(), block, draws_there, sums, scores, tokens);
  }
  context_->ReadLater(out, tokens, hidden.rows * static_cast<int64_t>(sizeof(*out)));
}

void CudaForwardOps::Logits(Matrix hidden, const LinearWeight& head, FloatMatrix out) {
  counts_.Add(ForwardOp::kLogits, hidden.rows);
  TANDEM_CHECK(out.cols == head.rows && hidden.cols == head.cols && hidden.rows == out.rows,
               "shapes of Logits do not match");
  CheckHead(hidden, head, head.rows);
  for (int64_t i = 0; i < HeadGroups(head.rows); ++i) {
    const HeadGroup group = HeadGroupAt(i, head.rows, head.rows);
    linear_->Logits(hidden, head, group.first_id, group.ids, out.data + group.first_id, out.stride);
  }
}

}  // namespace tandem
