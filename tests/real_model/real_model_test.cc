// A published language model knows facts, and its log-probs have the same bits wherever they
// are computed.
#include "tests/real_model/real_model.h"

#include <cmath>

#include <catch2/catch.hpp>

#include "common/comm/communicator.h"
#include "common/process/threads.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"
#include "trainer_worker/trained_weights/checkpoint.h"
#include "trainer_worker/training_session.h"

namespace tandem::testing {
namespace {

using Samples = std::map<uint64_t, Sample>;

std::string ResponseText(const RealModel& model, const Sample& sample) {
  return model.tokenizer().Decode(
      std::span(sample.tokens).subspan(static_cast<size_t>(sample.prompt_tokens)), true);
}

// The expected continuation of a text, for every rounding of the kernels.
struct Fact {
  const char* begin;
  const char* next;
};
constexpr Fact kFacts[] = {{"The capital of France is", " Paris"},
                           {"Romeo and Juliet is a play by William", " Shakespeare"},
                           {"A molecule of water is made of hydrogen and", " oxygen"}};

// Several samples of one open question.
GenerationRequest StoryRequest() {
  GenerationRequest request =
      MakeRequest(3, RealModel::Get().Question("Tell me a short story about a fox."), 4);
  request.params.temperature = 0.9f;
  request.params.max_tokens = 70;
  return request;
}

// Three facts, completed greedily, and the story: a few hundred tokens. Made once.
const Samples& Answers() {
  static const Samples answers = [] {
    const RealModel& model = RealModel::Get();
    std::vector<GenerationRequest> requests;
    for (const Fact& fact : kFacts) {
      const auto prompt = model.tokenizer().Encode(fact.begin, false);
      REQUIRE(prompt.ok());
      requests.push_back(MakeRequest(std::ssize(requests), *prompt, 1));
      requests.back().params.temperature = 0.0f;
      requests.back().params.max_tokens = 24;
      requests.back().params.ignore_eos = true;
    }
    requests.push_back(StoryRequest());
    return Generate(model, requests);
  }();
  return answers;
}

TEST_CASE("the real tokenizer gives back what it was given") {
  const Tokenizer& tokenizer = RealModel::Get().tokenizer();
  REQUIRE(tokenizer.vocab_size() <= RealModel::Get().spec().vocab_size);
  for (const std::string text :
       {"The quick brown fox jumps over 12345 lazy dogs.", "  two spaces\n\n\tand a tab ",
        "Grüße aus Zürich, 東京, Привет 🙂", "f(x) = x**2 + 3*x - 7  # code"}) {
    INFO(text);
    const auto ids = tokenizer.Encode(text, false);
    REQUIRE(ids.ok());
    REQUIRE(tokenizer.Decode(*ids, false) == text);
    REQUIRE(ids->size() < text.size());
    StreamDecoder stream(tokenizer, false);
    std::string streamed;
    for (const int32_t id : *ids) streamed += stream.Push(id);
    REQUIRE(streamed + stream.Finish() == text);
  }
}

TEST_CASE("the real chat template marks every turn with special tokens") {
  const Tokenizer& tokenizer = RealModel::Get().tokenizer();
  const auto parsed = ChatTemplate::Parse(*tokenizer.chat_template());
  REQUIRE(parsed.ok());
  ChatInputs inputs;
  inputs.messages = {{{"role", "system"}, {"content", "Be brief."}},
                     {{"role", "user"}, {"content", "Hello"}}};
  inputs.add_generation_prompt = true;
  const auto text = parsed->Render(inputs);
  REQUIRE(text.ok());
  REQUIRE(*text ==
          "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
          "<|im_start|>assistant\n");
  const auto ids = tokenizer.Encode(*text, false);
  REQUIRE(ids.ok());
  const auto begin = tokenizer.TokenId("<|im_start|>"), end = tokenizer.TokenId("<|im_end|>");
  REQUIRE(std::count(ids->begin(), ids->end(), *begin) == 3);
  REQUIRE(std::count(ids->begin(), ids->end(), *end) == 2);
  REQUIRE(tokenizer.eos_token_ids().front() == *end);
  REQUIRE(tokenizer.Decode(*ids, true) == "system\nBe brief.\nuser\nHello\nassistant\n");
}

TEST_CASE("the real model knows some facts") {
  for (size_t i = 0; i < std::size(kFacts); ++i) {
    const Sample& sample = Answers().at(MakeSampleId(i, 1, 0));
    const std::string text = ResponseText(RealModel::Get(), sample);
    INFO(kFacts[i].begin << "|" << text);
    REQUIRE(text.starts_with(kFacts[i].next));
    REQUIRE(sample.log_probs.front() > std::log(0.2f));
  }
}

TEST_CASE("samples of a real model do not depend on those beside them") {
  const RealModel& model = RealModel::Get();
  GenerationRequest request = StoryRequest();
  const std::vector<uint64_t> ids = request.sample_ids;
  for (const uint64_t id : {ids[1], ids.back()}) {
    INFO("sample " << id);
    request.sample_ids = {id};
    const Sample alone = Generate(model, {request}, {.threads = 1}).at(id);
    REQUIRE(alone.tokens == Answers().at(id).tokens);
    REQUIRE(alone.log_probs == Answers().at(id).log_probs);
  }
}

TEST_CASE("the trainer's log-probs of real text are bit for bit the rollout's") {
  Ledger ledger;
  SoloCommunicator communicator;
  const auto pool = std::make_shared<ThreadPool>(2);
  const auto forward = CreateCpuForwardOps(DType::kBFloat16, pool).value();
  const auto backward = CreateCpuBackwardOps(DType::kBFloat16, pool).value();
  SessionOptions options;
  options.model_dir = RealModelDir();
  options.vocab_limit = RealModel::Get().tokenizer().vocab_size();
  options.max_sequence_tokens = 512;
  options.max_micro_batch_tokens = 512;
  const auto shard_ops = CreateCpuShardOps(pool);
  const auto session = TrainingSession::Create(
      options, {HostDevice(), forward.get(), backward.get(), shard_ops.get()}, &communicator,
      &ledger);
  INFO(session.status().ToString());
  REQUIRE(session.ok());
  REQUIRE(LoadModel(options.model_dir, (*session)->spec(), (*session)->shard()).ok());
  std::vector<Sample> samples;
  int64_t tokens = 0;
  for (const auto& [id, sample] : Answers()) {
    samples.push_back(sample);
    tokens += sample.response_tokens();
  }
  REQUIRE(tokens > 150);
  const auto scores = (*session)->Score(samples);
  INFO(scores.status().ToString());
  REQUIRE(scores.ok());
  for (const Sample& sample : samples) {
    INFO("sample " << sample.sample_id);
    REQUIRE(scores->at(sample.sample_id) == sample.log_probs);
  }
}

TEST_CASE("real text goes on with the same bits whether its start was decoded or prefilled") {
  const RealModel& model = RealModel::Get();
  for (const uint64_t group : {0, 1, 2}) {
    const Sample& whole = Answers().at(MakeSampleId(group, 1, 0));
    const int64_t half = whole.response_tokens() / 2;
    REQUIRE(half >= 2);
    const auto cut = whole.tokens.begin() + whole.prompt_tokens + half;
    GenerationRequest request =
        MakeRequest(static_cast<int64_t>(group), {whole.tokens.begin(), cut}, 1);
    request.params.temperature = 0.0f;
    request.params.max_tokens = whole.response_tokens() - half;
    // Alone, in small chunks and on one thread, unlike the first time.
    const Samples again =
        Generate(model, {request}, {.max_num_seqs = 1, .max_num_batched_tokens = 19, .threads = 1});
    const Sample& rest = again.begin()->second;
    REQUIRE(rest.tokens == whole.tokens);
    REQUIRE(rest.log_probs ==
            std::vector<float>(whole.log_probs.begin() + half, whole.log_probs.end()));
  }
}

}  // namespace
}  // namespace tandem::testing
