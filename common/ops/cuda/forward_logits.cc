// The LM head with log-softmax on a GPU. Logits are computed by groups of chunks into a scratch
// that the last-level cache holds, and summed up there; a draw keeps the logits of its rows.
#include <algorithm>

#include "common/base/check.h"
#include "common/memory/scratch_slots.h"
#include "common/ops/cuda/forward_ops.h"
#include "common/ops/cuda/linear/head_groups.h"
#include "common/ops/cuda/sampling.h"

namespace tandem {
namespace {

// What the plan of a run's memory counts with.
static_assert(sizeof(LogitSums) == kLogitSumsBytes && sizeof(RowScore) == kRowScoreBytes &&
              sizeof(SampledToken) == kSampledTokenBytes);

void CheckHead(const Matrix& hidden, const LinearWeight& head, int64_t vocab_limit) {
  TANDEM_CHECK(vocab_limit >= 1 && vocab_limit <= head.rows, "vocab_limit outside the head");
  TANDEM_CHECK(hidden.cols == head.cols, "hidden states do not have the head's width");
  TANDEM_CHECK(head.bias == nullptr, "a head has no bias on a GPU");
}

float InverseTemperature(float temperature) {
  return temperature == 0.0f ? 1.0f : 1.0f / temperature;
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
