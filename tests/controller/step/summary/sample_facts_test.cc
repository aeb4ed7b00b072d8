#include "controller/step/summary/sample_facts.h"

#include <array>
#include <random>
#include <set>

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("The repeated share counts runs of four tokens that have occurred before",
          "[step_metrics]") {
  REQUIRE(RepeatedShare({}) == 0);
  REQUIRE(RepeatedShare({7, 7, 7}) == 0);
  REQUIRE(RepeatedShare({1, 2, 3, 4, 5}) == 0);
  REQUIRE(RepeatedShare({7, 7, 7, 7, 7, 7, 7}) == 0.75);  // one of four is new
  REQUIRE(RepeatedShare({1, 2, 1, 2, 1, 2}) == Approx(1.0 / 3));
  std::mt19937 dice(5);
  for (int length = 4; length < 60; ++length) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < length; ++i) tokens.push_back(static_cast<int32_t>(dice() % 2));
    std::set<std::array<int32_t, 4>> seen;
    int repeated = 0;
    for (size_t i = 0; i + 4 <= tokens.size(); ++i) {
      repeated +=
          seen.insert({tokens[i], tokens[i + 1], tokens[i + 2], tokens[i + 3]}).second ? 0 : 1;
    }
    REQUIRE(RepeatedShare(tokens) == Approx(repeated / (length - 3.0)));
  }
}

TEST_CASE("A sample's facts are of its response alone", "[step_metrics]") {
  Sample sample{.tokens = {9, 9, 9, 9, 9, 1, 2}, .prompt_tokens = 5, .log_probs = {-0.5f, -2.0f}};
  SampleRecord record;
  AddTokenFacts(sample, record);
  REQUIRE(record.prompt_tokens == 5);
  REQUIRE(record.min_log_prob == -2.0);
  REQUIRE(record.repetition == 0);
  sample.log_probs.clear();  // a rollout that records none
  SampleRecord unknown;
  AddTokenFacts(sample, unknown);
  REQUIRE_FALSE(unknown.min_log_prob);
}

}  // namespace tandem
