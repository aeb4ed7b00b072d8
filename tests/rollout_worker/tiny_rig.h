// A tiny model in memory and a generator over it: takes requests, returns samples.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/device/ledger.h"
#include "common/process/threads.h"
#include "rollout_worker/generation/generator.h"
#include "tests/support/tiny_weights.h"

namespace tandem::testing {

// Keeps everything a request's stream brings.
class CollectingSink final : public GenerationSink {
 public:
  void OnTokens(const TokenDelta& delta) override { deltas.push_back(delta); }
  void OnFinished(const Sample& sample) override { samples.push_back(sample); }
  void OnEnd(const absl::Status& status) override {
    ++ends;
    end = status;
  }
  bool cancelled() const override { return cancel; }

  std::vector<TokenDelta> deltas;
  std::vector<Sample> samples;
  int ends = 0;
  absl::Status end;
  bool cancel = false;
};

struct RigOptions {
  int64_t max_num_seqs = 16;
  int64_t max_num_batched_tokens = 256;
  bool share_prompts = true;
  int64_t max_model_len = 512;
  int64_t kv_blocks = 200;
  int threads = 1;
  std::shared_ptr<const Tokenizer> tokenizer;
};

inline GeneratorOptions MakeGeneratorOptions(const RigOptions& options) {
  GeneratorOptions generator;
  generator.scheduler = {options.max_num_seqs, options.max_num_batched_tokens,
                         options.share_prompts};
  generator.max_model_len = options.max_model_len;
  generator.vocab_limit = TinyTokenizerSize();
  generator.eos_token_ids = {TinyEosTokenId()};
  generator.tokenizer = options.tokenizer;
  return generator;
}

// A generator with its own KV pool over borrowed weights.
class Rig {
 public:
  Rig(const TinyWeights& weights, const RigOptions& options) : weights_(weights) {
    runner = ModelRunner::Create(HostDevice(), weights.spec,
                                 CreateCpuForwardOps(weights.layout.dtype(),
                                                     std::make_shared<ThreadPool>(options.threads))
                                     .value(),
                                 TinyTokenizerSize(), options.max_model_len,
                                 options.max_num_batched_tokens, nullptr)
                 .value();
    kv = KvCache::Create(HostDevice(), weights.spec, weights.layout.dtype(), options.kv_blocks,
                         nullptr)
             .value();
    REQUIRE(kv->Map().ok());
    REQUIRE(runner->MapActivations().ok());
    generator = std::make_unique<Generator>(MakeGeneratorOptions(options), runner.get(), kv.get());
  }

  std::shared_ptr<CollectingSink> Submit(const GenerationRequest& request) {
    auto sink = std::make_shared<CollectingSink>();
    const absl::Status status = generator->Submit(request, sink);
    INFO(status.ToString());
    REQUIRE(status.ok());
    return sink;
  }
  void Step() { REQUIRE(generator->Step(weights_.region->data(), version).ok()); }
  void Run() {
    for (int steps = 0; generator->has_work(); ++steps) {
      REQUIRE(steps < 100000);
      Step();
    }
    REQUIRE(generator->load().kv_blocks_used == 0);
  }

  int64_t version = 3;
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<KvCache> kv;
  std::unique_ptr<Generator> generator;

 private:
  const TinyWeights& weights_;
};

// Prompts of `lengths` tokens, `samples` samples each, sampled in all sorts of ways.
inline std::vector<GenerationRequest> MixedRequests(const std::vector<int64_t>& lengths,
                                                    int64_t samples,
                                                    int64_t max_tokens) {
  std::vector<GenerationRequest> requests;
  for (size_t r = 0; r < lengths.size(); ++r) {
    GenerationRequest request;
    request.request_id = "r" + std::to_string(r);
    request.group = static_cast<int64_t>(r);
    for (int64_t i = 0; i < lengths[r]; ++i) {
      request.prompt.push_back(static_cast<int32_t>((i * 37 + static_cast<int64_t>(r) * 11) % 250));
    }
    for (int64_t i = 0; i < samples; ++i) {
      request.sample_ids.push_back(MakeSampleId(r, 1, static_cast<uint64_t>(i)));
    }
    request.params.max_tokens = max_tokens;
    request.params.seed = 7 + r;
    request.params.temperature = r % 4 == 1 ? 0.0f : (r % 4 == 2 ? 0.7f : 1.0f);
    if (r % 4 == 2) request.params.top_p = 0.8f;
    if (r % 4 == 3) request.params.top_k = 5;
    requests.push_back(std::move(request));
  }
  return requests;
}

using SamplesById = std::map<uint64_t, Sample>;

inline void Collect(const CollectingSink& sink, SamplesById* samples) {
  REQUIRE(sink.ends == 1);
  REQUIRE(sink.end.ok());
  for (const Sample& sample : sink.samples) {
    REQUIRE(samples->emplace(sample.sample_id, sample).second);
  }
}

// Runs all requests together.
inline SamplesById GenerateAll(Rig& rig, const std::vector<GenerationRequest>& requests) {
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (const GenerationRequest& request : requests) sinks.push_back(rig.Submit(request));
  rig.Run();
  SamplesById samples;
  for (const auto& sink : sinks) Collect(*sink, &samples);
  return samples;
}

// Equal in every token and in every bit of every log-prob.
inline void RequireSame(const SamplesById& actual, const SamplesById& expected) {
  REQUIRE(actual.size() == expected.size());
  for (const auto& [id, sample] : expected) {
    INFO("sample " << id);
    const Sample& other = actual.at(id);
    REQUIRE(other.tokens == sample.tokens);
    REQUIRE(other.log_probs == sample.log_probs);
    REQUIRE(other.finish_reason == sample.finish_reason);
  }
}

}  // namespace tandem::testing
