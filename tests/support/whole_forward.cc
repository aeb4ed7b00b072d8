#include "tests/support/whole_forward.h"

#include <numeric>

#include "common/base/status.h"
#include "common/memory/activation_bytes.h"
#include "common/model/decoder.h"
#include "rollout_worker/generation/kv_cache.h"

namespace tandem::testing {
namespace {

// The rows behind which a response token stands.
std::vector<int32_t> ScoredRows(const Sample& sample) {
  std::vector<int32_t> rows(static_cast<size_t>(sample.response_tokens()));
  std::iota(rows.begin(), rows.end(), static_cast<int32_t>(sample.prompt_tokens - 1));
  return rows;
}

// `normed` [response tokens, hidden] is what the head takes.
absl::StatusOr<WholeForward> Score(Device* device,
                                   ForwardOps& ops,
                                   const LinearWeight& head,
                                   int64_t vocab_limit,
                                   Matrix normed,
                                   const Sample& sample) {
  const auto count = static_cast<size_t>(normed.rows);
  const std::vector<float> temperatures(count, sample.temperature);
  WholeForward result{std::vector<float>(count), std::vector<SampledToken>(count)};
  ops.TokenLogProbs(normed, head, vocab_limit, sample.tokens.data() + sample.prompt_tokens,
                    temperatures.data(), result.log_probs.data(), nullptr);
  ops.Sample(normed, head, vocab_limit, std::vector<SampleRow>(count, {.temperature = 0.0f}),
             result.greedy.data());
  TANDEM_RETURN_IF_ERROR(device->Synchronize());
  return result;
}

// Computes over `tokens`; `then` gets the weights and what the head takes of the rows `wanted`.
template <typename Then>
auto RunWhole(Device* device,
              ForwardOps& ops,
              const HeldModel& model,
              const std::vector<int32_t>& tokens,
              const std::vector<int32_t>& wanted,
              Then&& then) -> decltype(then(GlobalWeights(), Matrix())) {
  const ModelSpec& spec = model.spec;
  const DType dtype = ops.compute_dtype();
  const auto rows = static_cast<int64_t>(tokens.size());
  TANDEM_ASSIGN_OR_RETURN(const Decoder decoder, Decoder::Create(spec, &ops, rows));
  TANDEM_ASSIGN_OR_RETURN(const auto kv,
                          KvCache::Create(device, spec, dtype, KvBlocksFor(rows), nullptr));
  TANDEM_RETURN_IF_ERROR(kv->Map());
  const int64_t matrix = MatrixBytes(dtype, rows, spec.hidden_size);
  const auto element_bytes = static_cast<int64_t>(DTypeBytes(dtype));
  TANDEM_ASSIGN_OR_RETURN(
      const auto region,
      device->Reserve("activations", 3 * matrix + LayerActivationBytes(spec, element_bytes, rows),
                      nullptr));
  TANDEM_RETURN_IF_ERROR(region->Map());
  const auto place = [&](int64_t index) {
    return PlaceMatrix(region->data() + index * matrix, dtype, rows, spec.hidden_size);
  };

  std::vector<int32_t> blocks(static_cast<size_t>(kv->num_blocks()));
  std::iota(blocks.begin(), blocks.end(), 0);
  TokenBatch batch;
  batch.spans = {{.first_row = 0, .rows = rows, .first_position = 0, .blocks = blocks.data()}};
  batch.rope = &decoder.rope();
  LayerActivations buffers = PlaceLayerActivations(spec, dtype, rows, region->data() + 3 * matrix);
  const Matrix residual = decoder.Forward(model.storage, tokens.data(), batch, kv->layers(),
                                          buffers, place(0), place(1));
  const GlobalWeights globals = ViewGlobals(spec, decoder.layout(), model.storage);
  Matrix normed = place(2);
  normed.rows = std::ssize(wanted);
  decoder.FinalNorm(globals.final_norm, residual, wanted, normed);
  return then(globals, normed);
}

}  // namespace

absl::StatusOr<WholeForward> ForwardWhole(Device* device,
                                          ForwardOps& ops,
                                          const HeldModel& model,
                                          const Sample& sample) {
  return RunWhole(device, ops, model, sample.tokens, ScoredRows(sample),
                  [&](const GlobalWeights& globals, Matrix normed) {
                    return Score(device, ops, globals.head, model.vocab_limit, normed, sample);
                  });
}

absl::StatusOr<std::vector<float>> LogitsWhole(Device* device,
                                               ForwardOps& ops,
                                               const HeldModel& model,
                                               const std::vector<int32_t>& tokens,
                                               int64_t last_rows) {
  std::vector<int32_t> rows(static_cast<size_t>(last_rows));
  std::iota(rows.begin(), rows.end(), static_cast<int32_t>(std::ssize(tokens) - last_rows));
  const auto logits = [&](const GlobalWeights& globals,
                          Matrix normed) -> absl::StatusOr<std::vector<float>> {
    const int64_t vocabulary = model.spec.vocab_size;
    std::vector<float> values(static_cast<size_t>(last_rows * vocabulary));
    ops.Logits(normed, globals.head, {values.data(), last_rows, vocabulary, vocabulary});
    TANDEM_RETURN_IF_ERROR(device->Synchronize());
    return values;
  };
  return RunWhole(device, ops, model, tokens, rows, logits);
}

}  // namespace tandem::testing
