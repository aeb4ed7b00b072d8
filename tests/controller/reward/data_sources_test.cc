
#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "controller/reward/scorer_registry.h"
#include "tests/support/text.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)
using tandem::testing::Message;

TEST_CASE("Each public data set has the scorer that verl gives it", "[reward][sources]") {
  const std::pair<const char*, const char*> expected[] = {
      {"openai/gsm8k", "gsm8k_strict"},
      {"lighteval/MATH", "math_reward"},
      {"DigitalLearningGmbH/MATH-lighteval", "math_reward"},
      {"HuggingFaceH4/MATH-500", "math_reward"},
      {"math", "math_dapo"},
      {"math_dapo", "math_dapo"},
      {"math_dapo_reasoning", "math_dapo"},
      {"aime", "math_dapo"},
      {"aime2024", "math_dapo"},
      {"searchR1_nq", "search_r1_like_qa_em"},
      {"searchR1_triviaqa", "search_r1_like_qa_em"},
      {"searchR1_popqa", "search_r1_like_qa_em"},
      {"searchR1_hotpotqa", "search_r1_like_qa_em"},
      {"searchR1_2wikimultihopqa", "search_r1_like_qa_em"},
      {"searchR1_musique", "search_r1_like_qa_em"},
      {"searchR1_bamboogle", "search_r1_like_qa_em"},
      {"tandem/addition", "last_integer"}};
  for (const auto& [source, function] : expected) {
    INFO(source);
    REQUIRE(FunctionForDataSource(source).value() == function);
  }
}

TEST_CASE("A data source nobody knows is refused with its name and the remedy",
          "[reward][sources]") {
  for (const std::string source : {"my/data", "", "math_other", "searchR1_other", "an aime"}) {
    const absl::Status refused = FunctionForDataSource(source).status();
    REQUIRE(absl::IsInvalidArgument(refused));
    REQUIRE(Message(refused).find("data_source \"" + source + "\"") != std::string::npos);
    REQUIRE(Message(refused).find("reward.function") != std::string::npos);
  }
}

TEST_CASE("A source whose scorer needs what is not here is told so", "[reward][sources]") {
  REQUIRE(Message(FunctionForDataSource("numina_cn_k12").status()).find("prime_math compares") !=
          std::string::npos);
  REQUIRE(Message(FunctionForDataSource("taco").status()).find("runs code") != std::string::npos);
}

TEST_CASE("What a message offers for reward.function is what the key takes", "[reward][sources]") {
  const std::string refused = Message(FunctionForDataSource("my/data").status());
  for (const std::string& name : FunctionNames()) {
    INFO(name);
    REQUIRE(refused.find(name) != std::string::npos);
    REQUIRE(LoadConfig("", {"reward.function=" + name}).ok());
  }
  REQUIRE(refused.find("format") == std::string::npos);
  REQUIRE(refused.find("length") == std::string::npos);
}
