#include "tests/gpu/model_bench/bench_model.h"

#include "common/base/status.h"
#include "common/memory/memory_formulas.h"
#include "tests/gpu/qwen3.h"

namespace tandem::testing {
namespace {

constexpr int64_t kBf16Bytes = 2;

// Ids that Qwen3's tokenizer has.
constexpr int64_t kQwen3Tokens = 151669;

// Heads as wide as the GPU's kernels take them.
BenchModel Tiny() {
  BenchModel model{.name = "tiny", .spec = Qwen3("tiny"), .vocab_limit = 280};
  model.spec.vocab_size = 288;
  model.spec.num_heads = 2;
  model.spec.num_kv_heads = 1;
  model.spec.head_dim = 64;
  model.spec.intermediate_size = 64;
  model.prompt = 9;
  model.batches = {1, 3};
  model.timed_steps = 2;
  model.prefill_prompts = 3;
  model.step_tokens = 16;
  model.train_samples = 3;
  model.train_prompt = 5;
  model.train_response = 7;
  model.micro_batch = 24;
  model.warm_updates = 1;
  model.timed_updates = 1;
  return model;
}

int64_t HeadWeights(const ModelSpec& spec) { return spec.vocab_size * spec.hidden_size; }

// Of the products of one layer.
int64_t LayerWeightCount(const ModelSpec& spec) {
  return spec.hidden_size * (spec.qkv_rows() + spec.q_rows() + 3 * spec.intermediate_size);
}

}  // namespace

absl::StatusOr<BenchModel> FindBenchModel(const std::string& name) {
  if (name == "tiny") return Tiny();
  BenchModel model{.name = name, .spec = Qwen3(name), .vocab_limit = kQwen3Tokens};
  if (model.spec.num_layers == 0) {
    return InvalidArgument("there is no model \"{}\"; the models are 0.6b, 4b, 8b and tiny", name);
  }
  if (name == "0.6b") {
    model.train_samples = 16;
    model.micro_batch = 16384;
  }
  return model;
}

int64_t DecodeStepBytes(const ModelSpec& spec, int64_t positions) {
  const int64_t weights =
      spec.num_layers * LayerParameters(spec) + HeadWeights(spec) + spec.hidden_size;
  const int64_t per_position = spec.num_layers * 2 * spec.kv_rows();
  return kBf16Bytes * (weights + positions * per_position);
}

double ForwardFlops(const ModelSpec& spec, const ForwardWork& work) {
  const auto number = [](int64_t count) { return static_cast<double>(count); };
  const double layer = 2.0 * number(LayerWeightCount(spec)) * number(work.rows) +
                       4.0 * number(spec.q_rows()) * number(work.pairs);
  return number(spec.num_layers) * layer + 2.0 * number(HeadWeights(spec)) * number(work.scored);
}

double TrainingFlops(const ModelSpec& spec, const ForwardWork& work) {
  return 3.0 * ForwardFlops(spec, work);
}

int64_t CausalPairs(int64_t rows) { return rows * (rows + 1) / 2; }

}  // namespace tandem::testing
