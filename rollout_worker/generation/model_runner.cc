#include "rollout_worker/generation/model_runner.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "common/base/philox.h"
#include "common/base/status.h"
#include "common/device/device_memory.h"
#include "common/memory/activation_bytes.h"
#include "common/model_spec/rope.h"

namespace tandem {
namespace {

SampleRow MakeSampleRow(const Sequence& sequence) {
  const SamplingParams& params = sequence.group->params;
  SampleRow row;
  row.temperature = params.temperature;
  row.top_p = params.top_p;
  row.top_k = params.top_k;
  row.uniform =
      RandomUniform52(params.seed, sequence.sample_id, static_cast<uint64_t>(sequence.length()));
  return row;
}

std::vector<Digest> DigestsOf(const RopeTable& rope) {
  std::vector<Digest> digests;
  for (const std::vector<float>* table : {&rope.cos, &rope.sin}) {
    digests.push_back(DigestOf(table->data(), static_cast<int64_t>(table->size() * sizeof(float))));
  }
  return digests;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(Device* device,
                                                                 const ModelSpec& spec,
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
      new ModelRunner(device, std::move(ops), std::move(decoder), vocab_limit, ledger));
  runner->max_rows_ = max_num_batched_tokens;
  runner->table_digests_ = DigestsOf(runner->rope());
  const int64_t bytes =
      PlaceRolloutBatch(spec, static_cast<int64_t>(DTypeBytes(dtype)), max_num_batched_tokens).end;
  TANDEM_ASSIGN_OR_RETURN(runner->activations_, device->Reserve("activations", bytes, ledger));
  return runner;
}

absl::Status ModelRunner::VerifyTables() const {
  if (DigestsOf(rope()) == table_digests_) return absl::OkStatus();
  const int64_t half = rope().half_dim;
  const RopeTable made = MakeRopeTable(RopeInverseFrequencies(decoder_.spec()),
                                       static_cast<int64_t>(rope().cos.size()) / half);
  for (const auto& [name, held, right] :
       {std::tuple("cos", &rope().cos, &made.cos), std::tuple("sin", &rope().sin, &made.sin)}) {
    for (size_t i = 0; i < held->size(); ++i) {
      if (std::bit_cast<uint32_t>((*held)[i]) == std::bit_cast<uint32_t>((*right)[i])) continue;
      const auto index = static_cast<int64_t>(i);
      return MakeStatus(
          absl::StatusCode::kDataLoss,
          "the rope table {}[{}, {}] changed in this rollout's memory: it is {}, not {}", name,
          index / half, index % half, (*held)[i], (*right)[i]);
    }
  }
  return absl::DataLossError("the rope tables' digests changed in this rollout's memory");
}

void ModelRunner::Start(const StepPlan& plan, const std::byte* weights, KvCache& kv) {
  for (const KvLayer& layer : kv.layers()) {
    ops_->CopyBlocks(AttentionShapeOf(decoder_.spec()), plan.copies, layer);
  }
  const Matrix residual = Forward(plan, weights, kv);

  drawn_.clear();
  sampled_rows_.clear();
  int32_t row = 0;
  for (const PlannedSpan& span : plan.spans) {
    row += static_cast<int32_t>(span.tokens);
    span.ForEachSampler([&](Sequence* sequence) {
      drawn_.push_back({sequence, {}});
      sampled_rows_.push_back(row - 1);
    });
  }
  tokens_.resize(drawn_.size());
  const std::span<const int32_t> rows = sampled_rows_;
  for (size_t begin = 0; begin < rows.size(); begin += kDrawRows) {
    const size_t count = std::min(rows.size() - begin, static_cast<size_t>(kDrawRows));
    Draw(weights, residual, rows.subspan(begin, count), begin);
  }
  CountScratch();
}

absl::Status ModelRunner::Finish() {
  TANDEM_RETURN_IF_ERROR(device_->Synchronize());
  for (size_t i = 0; i < drawn_.size(); ++i) drawn_[i].drawn = tokens_[i];
  return absl::OkStatus();
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
  const bool decode = plan.tokens == std::ssize(plan.spans);
  if (decode) FillUp(kv);
  const ModelSpec& spec = decoder_.spec();
  const DType dtype = decoder_.dtype();
  const auto rows = static_cast<int64_t>(ids_.size());
  const RolloutOffsets at = PlaceRolloutBatch(spec, static_cast<int64_t>(DTypeBytes(dtype)), rows);
  std::byte* base = activations_->data();
  LayerActivations buffers = PlaceLayerActivations(spec, dtype, rows, base + at.activations);
  const auto forward = [&] {
    return decoder_.Forward(weights, ids_.data(), batch_, kv.layers(), buffers,
                            PlaceMatrix(base + at.residual_a, dtype, rows, spec.hidden_size),
                            PlaceMatrix(base + at.residual_b, dtype, rows, spec.hidden_size));
  };
  if (!decode) return forward();
  ops_->BeginStep(batch_.spans);
  const Matrix residual = forward();
  return ops_->EndStep() ? residual : forward();
}

void ModelRunner::FillUp(const KvCache& kv) {
  const int64_t rows = std::min(max_rows_, ops_->StepRows(std::ssize(ids_)));
  while (std::ssize(ids_) < rows) {
    batch_.spans.push_back({.first_row = std::ssize(ids_), .rows = 1, .blocks = kv.spare_block()});
    ids_.push_back(0);
  }
}

void ModelRunner::Draw(const std::byte* weights,
                       Matrix residual,
                       std::span<const int32_t> rows,
                       size_t first) {
  const ModelSpec& spec = decoder_.spec();
  const GlobalWeights globals = ViewGlobals(spec, decoder_.layout(), weights);
  const Matrix normed = PlaceMatrix(activations_->data(), decoder_.dtype(),
                                    static_cast<int64_t>(rows.size()), spec.hidden_size);
  decoder_.FinalNorm(globals.final_norm, residual, rows, normed);
  const auto row_bytes = normed.stride * static_cast<int64_t>(DTypeBytes(decoder_.dtype()));
  for (int64_t row = 0; row < normed.rows; ++row) {
    InjectBitFlip(device_, "hidden state", static_cast<std::byte*>(normed.data) + row * row_bytes);
  }
  sample_rows_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    sample_rows_.push_back(MakeSampleRow(*drawn_[first + i].sequence));
  }
  ops_->Sample(normed, globals.head, vocab_limit_, sample_rows_, tokens_.data() + first);
}

}  // namespace tandem
