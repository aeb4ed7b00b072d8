#include <catch2/catch.hpp>

#include "rollout_worker/generation/sequence.h"

namespace tandem {
namespace {

SamplingParams Params(int64_t max_tokens) {
  SamplingParams params;
  params.max_tokens = max_tokens;
  return params;
}

}  // namespace

TEST_CASE("An end token stops a response, also as its last token") {
  StopCondition stop(Params(2), {7}, 3, 100);
  REQUIRE(stop.OnToken(5, "") == FinishReason::kNone);
  REQUIRE(stop.OnToken(7, "") == FinishReason::kStop);
}

TEST_CASE("ignore_eos disarms end tokens but not other stop ids") {
  SamplingParams params = Params(9);
  params.ignore_eos = true;
  params.stop_token_ids = {7, 8};
  StopCondition stop(params, {7}, 3, 100);
  REQUIRE(stop.OnToken(7, "") == FinishReason::kNone);
  REQUIRE(stop.OnToken(8, "") == FinishReason::kStop);
}

TEST_CASE("A response ends at max_tokens or where prompt and response fill max_model_len") {
  StopCondition by_tokens(Params(2), {}, 3, 100);
  REQUIRE(by_tokens.OnToken(1, "") == FinishReason::kNone);
  REQUIRE(by_tokens.OnToken(1, "") == FinishReason::kLength);
  StopCondition by_model(Params(50), {}, 8, 10);
  REQUIRE(by_model.OnToken(1, "") == FinishReason::kNone);
  REQUIRE(by_model.OnToken(1, "") == FinishReason::kLength);
}

TEST_CASE("A round's limit cuts after so many tokens more, and every other end wins over it") {
  StopCondition stop(Params(5), {7}, 3, 100);
  REQUIRE(stop.OnToken(1, "") == FinishReason::kNone);
  stop.CutAfter(2);
  REQUIRE(stop.OnToken(1, "") == FinishReason::kNone);
  REQUIRE(stop.OnToken(1, "") == FinishReason::kCut);
  stop.CutAfter(2);
  REQUIRE(stop.OnToken(1, "") == FinishReason::kNone);
  REQUIRE(stop.OnToken(1, "") == FinishReason::kLength);
  StopCondition ends(Params(5), {7}, 3, 100);
  ends.CutAfter(1);
  REQUIRE(ends.OnToken(7, "") == FinishReason::kStop);
  StopCondition unlimited(Params(3), {7}, 3, 100);
  unlimited.CutAfter(0);
  REQUIRE(unlimited.OnToken(1, "") == FinishReason::kNone);
  REQUIRE(unlimited.OnToken(1, "") == FinishReason::kNone);
}

TEST_CASE("A stop text is found across any number of tokens") {
  for (size_t piece = 1; piece <= 9; ++piece) {
    SamplingParams params = Params(100);
    params.stop = {"", "###", "END OF"};
    StopCondition stop(params, {}, 1, 1000);
    const std::string text = "a ##b EN END O END OF it";
    const size_t wanted = text.find("END OF") + 6;
    REQUIRE(stop.needs_text());
    for (size_t at = 0; at < text.size(); at += piece) {
      const bool complete = at + piece >= wanted;
      REQUIRE((stop.OnToken(1, text.substr(at, piece)) == FinishReason::kStop) == complete);
      if (complete) break;
    }
  }
}

TEST_CASE("A stop text of one byte is found") {
  SamplingParams params = Params(10);
  params.stop = {"\n"};
  StopCondition stop(params, {}, 1, 1000);
  REQUIRE(stop.OnToken(1, "abc") == FinishReason::kNone);
  REQUIRE(stop.OnToken(1, "d\ne") == FinishReason::kStop);
}

}  // namespace tandem
