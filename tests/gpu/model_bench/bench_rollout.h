// What generates in a rollout worker, over random weights: a model runner, a KV cache, and
// generators with requests of random tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "rollout_worker/generation/generator.h"
#include "rollout_worker/weights/weight_storage.h"
#include "tests/gpu/model_bench/bench_gpu.h"
#include "tests/gpu/model_bench/bench_model.h"
#include "tests/support/whole_forward.h"

namespace tandem::testing {

// Keeps the samples.
class SampleSink final : public GenerationSink {
 public:
  void OnTokens(const TokenDelta&) override {}
  void OnFinished(const Sample& sample) override { samples.push_back(sample); }
  void OnEnd(const absl::Status& status) override { end.Update(status); }
  bool cancelled() const override { return false; }

  std::vector<Sample> samples;
  absl::Status end;
};

class DecodeRollout {
 public:
  struct Shape {
    int64_t sequences = 1;
    int64_t sequence_tokens = 1;  // prompt and response
  };
  // Of the device, weights, KV, activations and the head's scratch together.
  static int64_t Bytes(const BenchModel& model, const Shape& shape);

  // With a KV pool for `shape`. Unavailable: it does not fit. `gpu` and `model` outlive it.
  static absl::StatusOr<std::unique_ptr<DecodeRollout>> Create(const BenchGpu& gpu,
                                                               const BenchModel& model,
                                                               const Shape& shape);

  // For as many sequences of the shape's length, at most the shape's.
  std::unique_ptr<Generator> MakeGenerator(int64_t sequences);
  // Requests of one sequence each, with prompts of their own; their sequences end after
  // `response` tokens and nowhere else.
  absl::StatusOr<std::shared_ptr<SampleSink>> Submit(Generator& generator,
                                                     int64_t sequences,
                                                     int64_t response,
                                                     float temperature) const;
  absl::Status Step(Generator& generator) { return generator.Step(storage_->data(), 1); }

  // DataLoss: one forward over the whole sample has other log-probs, or, of a greedy sample, draws
  // other tokens, or a log-prob is none.
  absl::Status Check(const Sample& sample, bool greedy);

 private:
  DecodeRollout(const BenchGpu& gpu, const BenchModel& model) : gpu_(gpu), model_(model) {}

  const BenchGpu& gpu_;
  const BenchModel& model_;
  Shape shape_;
  std::unique_ptr<ForwardOps> checking_ops_;  // of their own, as a trainer has
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<WeightStorage> storage_;
  std::unique_ptr<KvCache> kv_;
};

}  // namespace tandem::testing
