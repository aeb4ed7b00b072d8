#include "rollout_worker/model_runner.h"

#include <algorithm>
#include <utility>

#include "common/base/philox.h"
#include "common/base/status_macros.h"

namespace tandem {
namespace {

// Rows whose logits are computed at a time; a group that forks may have more samplers.
constexpr int64_t kDrawRows = 256;

// The workspace: the normed rows that are sampled, two residuals, one layer's activations.
struct WorkspaceOffsets {
  int64_t residual_a = 0, residual_b = 0, activations = 0, end = 0;
};

WorkspaceOffsets PlaceWorkspace(const ModelSpec& spec, DType dtype, int64_t rows) {
  WorkspaceOffsets at;
  at.residual_a = MatrixBytes(dtype, kDrawRows, spec.hidden_size);
  at.residual_b = at.residual_a + MatrixBytes(dtype, rows, spec.hidden_size);
  at.activations = at.residual_b + MatrixBytes(dtype, rows, spec.hidden_size);
  at.end = at.activations + LayerActivationBytes(spec, dtype, rows);
  return at;
}

SampleRow MakeSampleRow(const Sequence& sequence) {
  const SamplingParams& params = sequence.group->params;
  SampleRow row;
  row.temperature = params.temperature;
  row.top_p = params.top_p;
  row.top_k = params.top_k;
  row.uniform =
      RandomUniform(params.seed, sequence.sample_id, static_cast<uint64_t>(sequence.length()));
  return row;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(const ModelSpec& spec,
                                                                 std::unique_ptr<ForwardOps> ops,
                                                                 int64_t vocab_limit,
                                                                 int64_t max_model_len,
                                                                 int64_t max_num_batched_tokens,
                                                                 Ledger* ledger) {
  if (vocab_limit < 1 || vocab_limit > spec.vocab_size) {
    return InvalidArgument(
        "the tokenizer has {} ids but the model only {} embedding rows: tokenizer and model do not "
        "belong together",
        vocab_limit, spec.vocab_size);
  }
  const DType dtype = ops->compute_dtype();
  TANDEM_ASSIGN_OR_RETURN(auto decoder, Decoder::Create(spec, ops.get(), max_model_len));
  std::unique_ptr<ModelRunner> runner(
      new ModelRunner(std::move(ops), std::move(decoder), vocab_limit, ledger));
  const int64_t bytes = PlaceWorkspace(spec, dtype, max_num_batched_tokens).end;
  TANDEM_ASSIGN_OR_RETURN(runner->workspace_, MemoryRegion::Reserve("activations", bytes, ledger));
  return runner;
}

const std::vector<DrawnToken>& ModelRunner::Run(const StepPlan& plan,
                                                const std::byte* weights,
                                                KvCache& kv) {
  for (const BlockCopy& copy : plan.copies) kv.CopyBlock(copy.from, copy.to);
  const Matrix residual = Forward(plan, weights, kv);

  drawn_.clear();
  sampled_rows_.clear();
  int64_t row = 0;
  for (const PlannedSpan& span : plan.spans) {
    row += span.tokens;
    span.ForEachSampler([&](Sequence* sequence) {
      drawn_.push_back({sequence, {}});
      sampled_rows_.push_back(row - 1);
    });
  }
  const std::span<const int64_t> rows = sampled_rows_;
  for (size_t begin = 0; begin < rows.size(); begin += kDrawRows) {
    const size_t count = std::min(rows.size() - begin, static_cast<size_t>(kDrawRows));
    Draw(weights, residual, rows.subspan(begin, count), begin);
  }
  CountScratch();
  return drawn_;
}

void ModelRunner::CountScratch() {
  const int64_t bytes = ops_->workspace_bytes();
  if (ledger_ != nullptr && bytes != scratch_bytes_) {
    ledger_->Add("workspace", Location::kDevice, bytes - scratch_bytes_);
  }
  scratch_bytes_ = bytes;
}

Matrix ModelRunner::Forward(const StepPlan& plan, const std::byte* weights, KvCache& kv) {
  ids_.clear();
  batch_.spans.clear();
  batch_.rope = &decoder_.rope();
  for (const PlannedSpan& span : plan.spans) {
    const auto first = static_cast<int64_t>(ids_.size());
    batch_.spans.push_back({.first_row = first,
                            .rows = span.tokens,
                            .first_position = span.first_position,
                            .blocks = span.sequence->blocks.data(),
                            .sequence = span.sequence->sample_id});
    const auto begin = span.sequence->tokens.begin() + span.first_position;
    ids_.insert(ids_.end(), begin, begin + span.tokens);
  }
  const ModelSpec& spec = decoder_.spec();
  const DType dtype = decoder_.dtype();
  const auto rows = static_cast<int64_t>(ids_.size());
  const WorkspaceOffsets at = PlaceWorkspace(spec, dtype, rows);
  std::byte* base = workspace_->data();
  LayerActivations buffers = PlaceLayerActivations(spec, dtype, rows, base + at.activations);
  return decoder_.Forward(weights, ids_.data(), batch_, kv.layers(), buffers,
                          PlaceMatrix(base + at.residual_a, dtype, rows, spec.hidden_size),
                          PlaceMatrix(base + at.residual_b, dtype, rows, spec.hidden_size));
}

void ModelRunner::Draw(const std::byte* weights,
                       Matrix residual,
                       std::span<const int64_t> rows,
                       size_t first) {
  const ModelSpec& spec = decoder_.spec();
  const GlobalWeights globals = ViewGlobals(spec, decoder_.layout(), weights);
  const Matrix normed = PlaceMatrix(workspace_->data(), decoder_.dtype(),
                                    static_cast<int64_t>(rows.size()), spec.hidden_size);
  decoder_.FinalNorm(globals.final_norm, residual, rows, normed);
  sample_rows_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    sample_rows_.push_back(MakeSampleRow(*drawn_[first + i].sequence));
  }
  tokens_.resize(rows.size());
  ops_->Sample(normed, globals.head, vocab_limit_, sample_rows_, tokens_.data());
  for (size_t i = 0; i < rows.size(); ++i) drawn_[first + i].drawn = tokens_[i];
}

}  // namespace tandem
