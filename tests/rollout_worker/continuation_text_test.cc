// The tokens that a sample continues from and its text: stop texts and characters that straddle a
// cut; and requests that are refused.
#include <catch2/catch.hpp>

#include "common/text/tokenizer.h"
#include "tests/rollout_worker/continuation_rig.h"

namespace tandem {
namespace {

using namespace tandem::testing;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// One sample of 200 tokens with its text as it came.
struct Spoken {
  TinyWeights weights{{}, DType::kBFloat16};
  std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::Load(weights.dir.path().string()).value();
  GenerationRequest request = Request();
  std::shared_ptr<CollectingSink> whole = Generate(request);

  static GenerationRequest Request() {
    GenerationRequest request = MixedRequests({10}, 1, 200)[0];
    request.params.ignore_eos = true;
    request.stream_tokens = true;
    request.version = 3;
    return request;
  }
  std::shared_ptr<CollectingSink> Generate(const GenerationRequest& wanted) const {
    Rig rig(weights, {.tokenizer = tokenizer});
    auto sink = rig.Submit(wanted);
    rig.Run();
    return sink;
  }
  // The rest after `tokens` tokens; `cap` more at most, if not 0.
  GenerationRequest From(const Sample& sample, int64_t tokens, int64_t cap = 0) const {
    GenerationRequest rest = request;
    rest.continued = {HeadOf(sample, tokens)};
    rest.continued[0].max_new_tokens = cap;
    return rest;
  }
  const Sample& sample() const { return whole->samples.at(0); }
  std::vector<int32_t> response() const {
    return {sample().tokens.begin() + 10, sample().tokens.end()};
  }
};

std::string StreamedText(const CollectingSink& sink) {
  std::string text;
  for (const TokenDelta& delta : sink.deltas) text += delta.text;
  return text;
}

// How many tokens there are before each that is inside of a character.
std::vector<int64_t> CutsInsideCharacters(const Spoken& spoken) {
  StreamDecoder decoder(*spoken.tokenizer, true);
  std::vector<int64_t> cuts;
  int64_t tokens = 0;
  for (const int32_t token : spoken.response()) {
    decoder.Push(token);
    ++tokens;
    if (decoder.has_pending() && tokens < 200) cuts.push_back(tokens);
  }
  return cuts;
}

}  // namespace

TEST_CASE("A character that a cut splits is streamed whole, once, with its last byte") {
  const Spoken spoken;
  const std::vector<int64_t> cuts = CutsInsideCharacters(spoken);
  REQUIRE(cuts.size() > 3);
  for (const int64_t cut : cuts) {
    INFO("cut after " << cut << " tokens");
    GenerationRequest first = spoken.request;
    first.continued = {{.max_new_tokens = cut}};
    const auto head = spoken.Generate(first);
    REQUIRE(head->samples.at(0).finish_reason == FinishReason::kCut);
    const auto tail = spoken.Generate(spoken.From(head->samples.at(0), cut));
    // Only what is new is streamed.
    REQUIRE(head->deltas.size() == static_cast<size_t>(cut));
    REQUIRE(tail->deltas.size() == static_cast<size_t>(200 - cut));
    REQUIRE(StreamedText(*head) + StreamedText(*tail) == StreamedText(*spoken.whole));
    for (size_t i = 0; i < tail->deltas.size(); ++i) {
      REQUIRE(tail->deltas[i].text == spoken.whole->deltas[static_cast<size_t>(cut) + i].text);
    }
    REQUIRE(StreamedText(*head) + StreamedText(*tail) ==
            spoken.tokenizer->Decode(spoken.response(), true));
  }
}

TEST_CASE("A stop text is found across a cut, wherever the cut is") {
  const Spoken spoken;
  // The text of ten tokens in the middle: the stop text has more than one character, and its first
  // occurrence is what a response without a cut ends with.
  std::string stop;
  for (size_t i = 100; i < 110; ++i) stop += spoken.whole->deltas[i].text;
  REQUIRE(stop.size() >= 5);
  GenerationRequest request = spoken.request;
  request.params.stop = {stop};
  const auto whole = spoken.Generate(request);
  const Sample& sample = whole->samples.at(0);
  REQUIRE(sample.finish_reason == FinishReason::kStop);
  const int64_t length = sample.response_tokens();
  REQUIRE(length > 12);
  for (int64_t cut = length - 12; cut < length; ++cut) {
    INFO("cut after " << cut << " of " << length << " tokens");
    GenerationRequest rest = spoken.From(sample, cut);
    rest.params.stop = {stop};
    const Sample resumed = spoken.Generate(rest)->samples.at(0);
    REQUIRE(resumed.finish_reason == FinishReason::kStop);
    REQUIRE(resumed.tokens == sample.tokens);
    // The last token of a round may complete the text: then it is not cut.
    rest.continued[0].max_new_tokens = length - cut;
    REQUIRE(spoken.Generate(rest)->samples.at(0).finish_reason == FinishReason::kStop);
  }
  GenerationRequest over = spoken.From(spoken.sample(), length + 3);
  over.params.stop = {stop};
  Rig rig(spoken.weights, {.tokenizer = spoken.tokenizer});
  const absl::Status refused = rig.generator->Submit(over, std::make_shared<CollectingSink>());
  REQUIRE(refused.code() == kInvalid);
  REQUIRE(std::string(refused.message()).find("already ended at token") != std::string::npos);
}

TEST_CASE("What cannot be gone on from is refused by sample, reason and remedy, and nothing runs") {
  TinyModelOptions model;
  model.vocab_size = 2048;  // most rows have no token
  const TinyWeights weights(model, DType::kBFloat16);
  Rig rig(weights, {});
  GenerationRequest good = MixedRequests({10}, 2, 30)[0];
  good.sample_ids = {77, 78};
  good.version = 3;
  good.continued = {{.tokens = {1, 2, 3}, .log_probs = {-1, -2, -3}, .versions = {0, 1, 3}}, {}};
  const auto refused = [&](const std::string& reason, const auto& change) {
    GenerationRequest request = good;
    change(request);
    const absl::Status status = rig.generator->Submit(request, std::make_shared<CollectingSink>());
    INFO(status.ToString());
    REQUIRE(status.code() == kInvalid);
    REQUIRE(std::string(status.message()).find(reason) != std::string::npos);
    REQUIRE(std::string(status.message()).find("request r0") != std::string::npos);
    REQUIRE(!rig.generator->has_work());
    return std::string(status.message());
  };
  const auto first = [](const auto& change) {
    return [change](GenerationRequest& request) { change(request.continued[0]); };
  };
  refused("2 samples were sent with 1 continuations", [](auto& r) { r.continued.pop_back(); });
  const auto rows = static_cast<int32_t>(TinyTokenizerSize());
  for (const int32_t id : {-1, rows, 2047, 5000}) {
    const std::string text = refused("token 1 of the continuation has id",
                                     first([&](Continuation& c) { c.tokens[1] = id; }));
    REQUIRE(text.find("sample 77") != std::string::npos);
    REQUIRE(text.find("restart the sample") != std::string::npos);
  }
  refused("3 tokens but 2 versions", first([](auto& c) { c.versions.pop_back(); }));
  refused("3 tokens but 4 log-probs", first([](auto& c) { c.log_probs.push_back(0); }));
  refused("3 tokens but 0 log-probs", first([](auto& c) { c.log_probs.clear(); }));
  refused("version 0, after version 1", first([](auto& c) { c.versions = {0, 1, 0}; }));
  refused("version -1, after version 0", first([](auto& c) { c.versions[0] = -1; }));
  refused("version 4, but this rollout serves version 3",
          first([](auto& c) { c.versions[2] = 4; }));
  refused("3 of max_tokens=3 already", [](auto& r) { r.params.max_tokens = 3; });
  refused("3 of max_tokens=2 already", [](auto& r) { r.params.max_tokens = 2; });
  refused("max_new_tokens is -1", first([](auto& c) { c.max_new_tokens = -1; }));
  const std::string ended = refused("already ended at token 1 of the continuation",
                                    first([](auto& c) { c.tokens[1] = TinyEosTokenId(); }));
  REQUIRE(ended.find("sample 77") != std::string::npos);
  REQUIRE(ended.find("already ended at token") != std::string::npos);

  // Where eos ends nothing it may be in the past; and what is not wrong runs.
  GenerationRequest ignores = good;
  ignores.continued[0].tokens[1] = TinyEosTokenId();
  ignores.params.ignore_eos = true;
  const auto sink = rig.Submit(ignores);
  const auto plain = rig.Submit(good);
  rig.Run();
  REQUIRE(sink->samples.size() == 2);
  REQUIRE(sink->samples.front().response_tokens() == 30);
  REQUIRE(plain->samples.size() == 2);
}

}  // namespace tandem
