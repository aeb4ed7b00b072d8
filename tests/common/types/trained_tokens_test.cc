#include <catch2/catch.hpp>

#include "common/types/response_tokens.h"

namespace tandem {
namespace {

const ResponseWindow kWindow{.prompt_tokens = 3, .response_tokens = 5};

TEST_CASE("Trained are the response tokens of trained segments, holes stay out", "[types]") {
  // A tool's output between two answers.
  REQUIRE(TrainedTokens({{0, 3, false, 0}, {3, 2, true, 0}, {5, 2, false, 0}, {7, 1, true, 0}},
                        kWindow) == std::vector<bool>{true, true, false, false, true});
  REQUIRE(TrainedTokens({{0, 8, false, 0}}, kWindow) == std::vector<bool>(5, false));
}

TEST_CASE("Of a segment only what lies in the response is trained", "[types]") {
  REQUIRE(TrainedTokens({{0, 4, true, 0}}, kWindow) ==
          std::vector<bool>{true, false, false, false, false});
  REQUIRE(TrainedTokens({{7, 9, true, 0}}, kWindow) ==
          std::vector<bool>{false, false, false, false, true});
}

TEST_CASE("Without segments the whole response is trained", "[types]") {
  REQUIRE(TrainedTokens({}, kWindow) == std::vector<bool>(5, true));
}

TEST_CASE("Counted are the trained tokens that the mask leaves", "[types]") {
  const std::vector<Segment> segments = {{0, 3, false, 0}, {3, 3, true, 0}, {6, 2, false, 0}};
  REQUIRE(CountedTokens(segments, kWindow, {}) == std::vector<float>{1, 1, 1, 0, 0});
  REQUIRE(CountedTokens(segments, kWindow, {1, 0, 1, 1, 0}) == std::vector<float>{1, 0, 1, 0, 0});
  Sample sample{.prompt_tokens = 3};
  sample.tokens.assign(8, 1);
  REQUIRE(CountedTokens(sample) == std::vector<float>(5, 1.0f));
  sample.segments = segments;
  sample.mask = {0, 1, 1, 1, 1};
  REQUIRE(CountedTokens(sample) == std::vector<float>{0, 1, 1, 0, 0});
}

}  // namespace
}  // namespace tandem
