#include "rollout_worker/generation/generator.h"

#include <cmath>

#include <catch2/catch.hpp>

#include "common/process/threads.h"
#include "tests/rollout_worker/tiny_rig.h"
#include "tests/support/whole_forward.h"

namespace tandem {
namespace {

using namespace tandem::testing;

const std::vector<int64_t> kLengths = {5, 64, 130, 63, 1, 90};

SamplesById OneByOne(const TinyWeights& weights, const std::vector<GenerationRequest>& requests) {
  SamplesById samples;
  for (const GenerationRequest& request : requests) {
    for (const uint64_t id : request.sample_ids) {
      Rig rig(weights, {});
      GenerationRequest single = request;
      single.sample_ids = {id};
      for (const auto& entry : GenerateAll(rig, {single})) samples.insert(entry);
    }
  }
  return samples;
}

GenerationRequest OneRequest(int64_t max_tokens) {
  GenerationRequest request = MixedRequests({10}, 1, max_tokens)[0];
  request.params.ignore_eos = true;
  return request;
}

absl::Status SubmitTo(Rig& rig, const GenerationRequest& request) {
  return rig.generator->Submit(request, std::make_shared<CollectingSink>());
}

}  // namespace

TEST_CASE("Log-probs of decoding are bit for bit those of one forward over the whole sample") {
  for (const std::string type : {"llama", "qwen2", "qwen3"}) {
    for (const bool tied : {true, false}) {
      TinyModelOptions model;
      model.model_type = type;
      model.tie_word_embeddings = tied;
      const TinyWeights weights(model, DType::kBFloat16);
      const HeldModel held = {.spec = weights.spec,
                              .storage = weights.region->data(),
                              .vocab_limit = TinyTokenizerSize()};
      const auto ops =
          CreateCpuForwardOps(DType::kBFloat16, std::make_shared<ThreadPool>(1)).value();
      Rig rig(weights, {});
      for (const auto& [id, sample] : GenerateAll(rig, MixedRequests({9, 64, 100, 30}, 2, 90))) {
        INFO(type << " sample " << id);
        REQUIRE(ForwardWhole(HostDevice(), *ops, held, sample)->log_probs == sample.log_probs);
      }
    }
  }
}

TEST_CASE("Tokens and log-prob bits do not depend on batch, chunks, sharing or preemption") {
  for (const std::string type : {"llama", "qwen2", "qwen3"}) {
    INFO(type);
    TinyModelOptions model;
    model.model_type = type;
    const TinyWeights weights(model, DType::kBFloat16);
    const auto requests = MixedRequests(kLengths, 3, 80);
    const SamplesById expected = OneByOne(weights, requests);
    REQUIRE(expected.size() == 18);

    RigOptions options;
    Rig batch(weights, options);
    RequireSame(GenerateAll(batch, requests), expected);
    REQUIRE(batch.generator->load().preemptions == 0);
    REQUIRE(batch.generator->load().prefill_tokens == 5 + 64 + 130 + 63 + 1 + 90);

    options.max_num_seqs = 3;
    options.max_num_batched_tokens = 17;
    Rig chunked(weights, options);
    RequireSame(GenerateAll(chunked, requests), expected);

    options = {};
    options.share_prompts = false;
    options.threads = 2;
    Rig unshared(weights, options);
    RequireSame(GenerateAll(unshared, requests), expected);

    options = {};
    options.max_model_len = 256;
    options.kv_blocks = 6;
    Rig tight(weights, options);
    RequireSame(GenerateAll(tight, requests), expected);
    REQUIRE(tight.generator->load().preemptions > 0);
  }
}

TEST_CASE("The fp32 reference path is as independent of the batch") {
  TinyModelOptions model;
  model.float32 = true;
  const TinyWeights weights(model, DType::kFloat32);
  const auto requests = MixedRequests({5, 70}, 2, 30);
  RigOptions options;
  options.max_num_batched_tokens = 13;
  Rig rig(weights, options);
  RequireSame(GenerateAll(rig, requests), OneByOne(weights, requests));
}

TEST_CASE("No id beyond the tokenizer is sampled and log-probs are those of its ids alone") {
  TinyModelOptions model;
  model.vocab_size = 2048;  // most rows have no token
  const TinyWeights weights(model, DType::kBFloat16);
  Rig rig(weights, {});
  auto requests = MixedRequests({8, 8, 8, 8}, 4, 60);
  for (auto& request : requests) request.params.temperature *= 3.0f;
  const SamplesById samples = GenerateAll(rig, requests);
  for (const auto& [id, sample] : samples) {
    for (const int32_t token : sample.tokens) REQUIRE(token < TinyTokenizerSize());
    for (const float log_prob : sample.log_probs) {
      REQUIRE(std::isfinite(log_prob));
      REQUIRE(log_prob <= 0.0f);
    }
  }
  GenerationRequest beyond = OneRequest(4);
  beyond.prompt[3] = static_cast<int32_t>(TinyTokenizerSize());
  const absl::Status refused = SubmitTo(rig, beyond);
  REQUIRE(refused.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(refused.message()).find("prompt token 3") != std::string::npos);
}

TEST_CASE("A request that asks for log-probs gets them where others get none") {
  const TinyWeights weights({}, DType::kBFloat16);
  GenerationRequest plain = OneRequest(5);
  GenerationRequest asks = plain;
  asks.request_id = "asks";
  asks.log_probs = true;
  for (const bool always : {false, true}) {
    Rig rig(weights, {});
    GeneratorOptions options = MakeGeneratorOptions({});
    options.log_probs = always;
    rig.generator = std::make_unique<Generator>(options, rig.runner.get(), rig.kv.get());
    const auto without = rig.Submit(plain), with = rig.Submit(asks);
    rig.Run();
    REQUIRE(with->samples.front().log_probs.size() == 5);
    REQUIRE(without->samples.front().log_probs.size() == (always ? 5 : 0));
    REQUIRE(with->samples.front().tokens == without->samples.front().tokens);
  }
}

TEST_CASE("A sample carries version, segments, temperature and whether it left the support") {
  const TinyWeights weights({}, DType::kBFloat16);
  Rig rig(weights, {});
  GenerationRequest request = OneRequest(6);
  auto plain = rig.Submit(request);
  request.params.temperature = 0.0f;
  request.params.top_k = 1;
  auto greedy = rig.Submit(request);
  for (int i = 0; i < 3; ++i) rig.Step();
  rig.version = 4;
  rig.Run();
  const Sample& sample = plain->samples.at(0);
  REQUIRE(sample.response_tokens() == 6);
  REQUIRE(sample.finish_reason == FinishReason::kLength);
  REQUIRE(sample.versions == std::vector<int64_t>{3, 3, 3, 4, 4, 4});
  REQUIRE(sample.segments.size() == 3);
  REQUIRE(!sample.segments[0].trained);
  REQUIRE(sample.segments[2].begin == 13);
  REQUIRE(sample.segments[2].weight_version == 4);
  REQUIRE(!sample.off_support);
  REQUIRE(greedy->samples.at(0).off_support);
  REQUIRE(greedy->samples.at(0).temperature == 1.0f);
}

TEST_CASE("Seed and sample id change a sample, nothing else does") {
  const TinyWeights weights({}, DType::kBFloat16);
  Rig rig(weights, {});
  GenerationRequest request = OneRequest(40);
  const auto first = rig.Submit(request);
  const auto again = rig.Submit(request);
  request.params.seed += 1;
  const auto seeded = rig.Submit(request);
  request.params.seed -= 1;
  request.sample_ids[0] += 1;
  const auto other = rig.Submit(request);
  rig.Run();
  REQUIRE(first->samples[0].tokens == again->samples[0].tokens);
  REQUIRE(first->samples[0].tokens != seeded->samples[0].tokens);
  REQUIRE(first->samples[0].tokens != other->samples[0].tokens);
}

TEST_CASE("Malformed requests are refused with what is wrong") {
  const TinyWeights weights({}, DType::kBFloat16);
  RigOptions options;
  options.max_model_len = 64;
  Rig rig(weights, options);
  const auto code = [&rig](const GenerationRequest& request) {
    return SubmitTo(rig, request).code();
  };
  GenerationRequest request = OneRequest(4);
  request.prompt.clear();
  REQUIRE(code(request) == absl::StatusCode::kInvalidArgument);
  request = OneRequest(0);
  REQUIRE(code(request) == absl::StatusCode::kInvalidArgument);
  request = OneRequest(4);
  request.params.temperature = -1.0f;
  REQUIRE(code(request) == absl::StatusCode::kInvalidArgument);
  request = OneRequest(4);
  request.params.top_p = 0.0f;
  REQUIRE(code(request) == absl::StatusCode::kInvalidArgument);
  request = OneRequest(4);
  request.params.top_k = 0;
  REQUIRE(code(request) == absl::StatusCode::kInvalidArgument);
  request = OneRequest(4);
  request.sample_ids = {5, 5};
  REQUIRE(code(request) == absl::StatusCode::kInvalidArgument);
  request = OneRequest(4);
  request.params.stop = {"x"};
  REQUIRE(code(request) == absl::StatusCode::kInvalidArgument);
  REQUIRE(code(OneRequest(55)) == absl::StatusCode::kResourceExhausted);
  // Sums with these would overflow, and let a prompt pass that is too long by itself.
  REQUIRE(code(OneRequest(INT64_MAX)) == absl::StatusCode::kResourceExhausted);
  request = MixedRequests({65}, 1, INT64_MAX)[0];
  REQUIRE(code(request) == absl::StatusCode::kResourceExhausted);
  REQUIRE(code(OneRequest(54)) == absl::StatusCode::kOk);
  rig.Run();
}

TEST_CASE("An aborted request delivers what it has and gives its blocks back") {
  const TinyWeights weights({}, DType::kBFloat16);
  Rig rig(weights, {});
  GenerationRequest request = MixedRequests({70}, 3, 200)[0];
  request.params.ignore_eos = true;
  const auto aborted = rig.Submit(request);
  request.request_id = "other";
  const auto other = rig.Submit(request);
  for (int i = 0; i < 10; ++i) rig.Step();
  REQUIRE(rig.generator->Abort({"nobody"}) == 0);
  REQUIRE(rig.generator->Abort({"r0"}) == 1);
  REQUIRE(aborted->ends == 1);
  REQUIRE(aborted->end.ok());
  REQUIRE(aborted->samples.size() == 3);
  for (const Sample& sample : aborted->samples) {
    REQUIRE(sample.finish_reason == FinishReason::kAborted);
    REQUIRE(sample.response_tokens() == 10);
  }
  rig.Run();
  REQUIRE(other->samples.size() == 3);
  // What it had is a prefix of what it would have become.
  for (int i = 0; i < 80; ++i) {
    REQUIRE(aborted->samples[0].tokens[i] == other->samples[0].tokens[i]);
  }
}

TEST_CASE("A cancelled request is dropped at the next step") {
  const TinyWeights weights({}, DType::kBFloat16);
  Rig rig(weights, {});
  const auto sink = rig.Submit(OneRequest(200));
  rig.Step();
  sink->cancel = true;
  rig.Step();
  REQUIRE(!rig.generator->has_work());
  REQUIRE(sink->end.code() == absl::StatusCode::kCancelled);
  REQUIRE(sink->samples.empty());
  REQUIRE(rig.generator->load().kv_blocks_used == 0);
}

TEST_CASE("Streamed deltas add up to the sample and to its text") {
  const TinyWeights weights({}, DType::kBFloat16);
  const std::shared_ptr<const Tokenizer> tokenizer =
      Tokenizer::Load(weights.dir.path().string()).value();
  RigOptions options;
  options.tokenizer = tokenizer;
  Rig rig(weights, options);
  GenerationRequest request = OneRequest(100);
  request.stream_tokens = true;
  const auto sink = rig.Submit(request);
  rig.Run();
  const Sample& sample = sink->samples.at(0);
  REQUIRE(sink->deltas.size() == 100);
  std::string text;
  for (size_t i = 0; i < 100; ++i) {
    REQUIRE(sink->deltas[i].token == sample.tokens[10 + i]);
    REQUIRE(sink->deltas[i].log_prob == sample.log_probs[i]);
    text += sink->deltas[i].text;
  }
  const std::vector<int32_t> response(sample.tokens.begin() + 10, sample.tokens.end());
  REQUIRE(text == tokenizer->Decode(response, true));
}

TEST_CASE("A stop text ends the response with the token that completes it") {
  const TinyWeights weights({}, DType::kBFloat16);
  const std::shared_ptr<const Tokenizer> tokenizer =
      Tokenizer::Load(weights.dir.path().string()).value();
  RigOptions options;
  options.tokenizer = tokenizer;
  Rig rig(weights, options);
  const auto free = rig.Submit(OneRequest(100));
  rig.Run();
  const Sample whole = free->samples.at(0);
  // Stop at the text of two adjacent tokens that are whole characters.
  size_t at = 12;
  const auto piece = [&](size_t i) { return tokenizer->Decode({{whole.tokens[i]}}, true); };
  const auto plain = [&](size_t i) {
    return piece(i).size() == 1 && static_cast<unsigned char>(piece(i)[0]) < 0x80;
  };
  while (at + 1 < whole.tokens.size() && !(plain(at) && plain(at + 1))) ++at;
  REQUIRE(at + 1 < whole.tokens.size());
  GenerationRequest request = OneRequest(100);
  request.params.stop = {piece(at) + piece(at + 1)};
  const auto stopped = rig.Submit(request);
  rig.Run();
  const Sample& sample = stopped->samples.at(0);
  REQUIRE(sample.finish_reason == FinishReason::kStop);
  REQUIRE(sample.tokens.size() <= at + 2);
  REQUIRE(std::equal(sample.tokens.begin(), sample.tokens.end(), whole.tokens.begin()));
  const std::vector<int32_t> response(sample.tokens.begin() + 10, sample.tokens.end());
  const std::string text = tokenizer->Decode(response, true);
  REQUIRE(text.substr(text.size() - 2) == request.params.stop[0]);
}

}  // namespace tandem
