#include <catch2/catch.hpp>

#include "common/types/response_tokens.h"

namespace tandem {
namespace {

Sample SampleOf(std::vector<int64_t> versions) {
  Sample sample{.prompt_tokens = 2};
  sample.tokens.assign(2 + versions.size(), 7);
  sample.versions = std::move(versions);
  return sample;
}

void RequireSegment(const Segment& got, const Segment& want) {
  REQUIRE(got.begin == want.begin);
  REQUIRE(got.length == want.length);
  REQUIRE(got.trained == want.trained);
  REQUIRE(got.weight_version == want.weight_version);
}

TEST_CASE("A response has a segment for each weight version, counted from its first token",
          "[types]") {
  const auto segments = ResponseSegments(SampleOf({3, 3, 4, 6, 6, 6}));
  REQUIRE(segments.size() == 3);
  RequireSegment(segments[0], {0, 2, true, 3});
  RequireSegment(segments[1], {2, 1, true, 4});
  RequireSegment(segments[2], {3, 3, true, 6});
  REQUIRE(ResponseSegments(SampleOf({5})).size() == 1);
  REQUIRE(ResponseSegments(SampleOf({})).empty());
}

TEST_CASE("What a tool said is a segment of its own inside one of a version", "[types]") {
  Sample sample = SampleOf({3, 3, 3, 3, 4});
  sample.segments = {{0, 2, false, 0}, {2, 1, true, 3}, {3, 2, false, 3}, {5, 2, true, 3}};
  const auto segments = ResponseSegments(sample);
  REQUIRE(segments.size() == 4);
  RequireSegment(segments[0], {0, 1, true, 3});
  RequireSegment(segments[1], {1, 2, false, 3});
  RequireSegment(segments[2], {3, 1, true, 3});
  RequireSegment(segments[3], {4, 1, true, 4});
}

}  // namespace
}  // namespace tandem
