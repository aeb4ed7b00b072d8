#include "tests/gpu/model_bench/bench_rollout.h"

#include <cmath>
#include <utility>

#include "common/base/philox.h"
#include "common/base/status.h"
#include "common/memory/activation_bytes.h"
#include "tests/gpu/model_bench/random_weights.h"

namespace tandem::testing {
namespace {

constexpr DType kBf16 = DType::kBFloat16;

// While rows are drawn: their logits, and 12 bytes for each 1,024 of them.
int64_t HeadScratchBytes(const ModelSpec& spec) { return kDrawRows * spec.vocab_size * 5; }

}  // namespace

int64_t DecodeRollout::Bytes(const BenchModel& model, const Shape& shape) {
  return RegionBytes(WeightBytes(model.spec)) +
         shape.sequences * KvBlocksFor(shape.sequence_tokens) *
             KvBlockBytesOfAllLayers(model.spec) +
         PlaceRolloutBatch(model.spec, 2, model.step_tokens).end + HeadScratchBytes(model.spec);
}

absl::StatusOr<std::unique_ptr<DecodeRollout>> DecodeRollout::Create(const BenchGpu& gpu,
                                                                     const BenchModel& model,
                                                                     const Shape& shape) {
  TANDEM_RETURN_IF_ERROR(CheckFits(gpu,
                                   fmt::format("{} with {} sequences of {} tokens", model.name,
                                               shape.sequences, shape.sequence_tokens),
                                   Bytes(model, shape)));
  Backend& backend = *gpu.backend;
  TANDEM_RETURN_IF_ERROR(backend.PrepareModel(model.spec, model.vocab_limit, ModelUse::kForward));
  std::unique_ptr<DecodeRollout> rollout(new DecodeRollout(gpu, model));
  rollout->shape_ = shape;
  TANDEM_ASSIGN_OR_RETURN(rollout->checking_ops_, backend.MakeForwardOps(kBf16));
  TANDEM_ASSIGN_OR_RETURN(auto ops, backend.MakeForwardOps(kBf16));
  TANDEM_ASSIGN_OR_RETURN(
      rollout->runner_,
      ModelRunner::Create(gpu.device(), model.spec, std::move(ops), model.vocab_limit,
                          shape.sequence_tokens, model.step_tokens, nullptr));
  const WeightLayout* const layout = &rollout->runner_->layout();
  TANDEM_ASSIGN_OR_RETURN(rollout->storage_, WeightStorage::Create(gpu.device(), layout, nullptr));
  TANDEM_RETURN_IF_ERROR(rollout->storage_->Map());
  TANDEM_ASSIGN_OR_RETURN(const auto storage_ops,
                          backend.MakeStorageOps(layout, rollout->storage_->data()));
  TANDEM_RETURN_IF_ERROR(FillStorage(gpu.device(), *storage_ops));
  TANDEM_ASSIGN_OR_RETURN(
      rollout->kv_, KvCache::Create(gpu.device(), model.spec, kBf16,
                                    shape.sequences * KvBlocksFor(shape.sequence_tokens), nullptr));
  TANDEM_RETURN_IF_ERROR(rollout->kv_->Map());
  TANDEM_RETURN_IF_ERROR(rollout->runner_->MapActivations());
  return rollout;
}

std::unique_ptr<Generator> DecodeRollout::MakeGenerator(int64_t sequences) {
  GeneratorOptions options;
  options.scheduler = {.max_num_seqs = sequences, .max_num_batched_tokens = model_.step_tokens};
  options.max_model_len = shape_.sequence_tokens;
  options.vocab_limit = model_.vocab_limit;
  return std::make_unique<Generator>(options, runner_.get(), kv_.get());
}

absl::StatusOr<std::shared_ptr<SampleSink>> DecodeRollout::Submit(Generator& generator,
                                                                  int64_t sequences,
                                                                  int64_t response,
                                                                  float temperature) const {
  auto sink = std::make_shared<SampleSink>();
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    const auto stream = static_cast<uint64_t>(sequence);
    GenerationRequest request;
    request.sample_ids = {stream};
    request.params = {
        .temperature = temperature, .max_tokens = response, .seed = 1, .ignore_eos = true};
    for (int64_t i = 0; i < model_.prompt; ++i) {
      const uint32_t word = RandomWords(1, stream, static_cast<uint64_t>(i))[0];
      request.prompt.push_back(static_cast<int32_t>(word % model_.vocab_limit));
    }
    TANDEM_RETURN_IF_ERROR(generator.Submit(std::move(request), sink));
  }
  return sink;
}

absl::Status DecodeRollout::Check(const Sample& sample, bool greedy) {
  TANDEM_ASSIGN_OR_RETURN(
      const WholeForward whole,
      ForwardWhole(
          gpu_.device(), *checking_ops_,
          {.spec = model_.spec, .storage = storage_->data(), .vocab_limit = model_.vocab_limit},
          sample));
  for (size_t i = 0; i < whole.log_probs.size(); ++i) {
    const float log_prob = sample.log_probs[i];
    const int32_t token = sample.tokens[static_cast<size_t>(sample.prompt_tokens) + i];
    if (!std::isfinite(log_prob) || log_prob > 0 || log_prob != whole.log_probs[i]) {
      return MakeStatus(absl::StatusCode::kDataLoss,
                        "{}: token {} was decoded with log-prob {}, and one forward over the "
                        "whole sample gives {}",
                        model_.name, i, log_prob, whole.log_probs[i]);
    }
    if (greedy && token != whole.greedy[i].token) {
      return MakeStatus(absl::StatusCode::kDataLoss,
                        "{}: token {} was decoded as {}, and one forward over the whole sample "
                        "gives {}",
                        model_.name, i, token, whole.greedy[i].token);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::testing
