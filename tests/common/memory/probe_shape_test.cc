#include <algorithm>

#include <catch2/catch.hpp>

#include "common/memory/op_sizes.h"

namespace tandem {

TEST_CASE("The probe decodes across the end of a KV block and as far as it may, up to its bound") {
  REQUIRE(ProbeSequences(1024) == std::vector<int64_t>{24, kKvBlockTokens + 2, kProbeLongest});
  REQUIRE(ProbeSequences(100) == std::vector<int64_t>{24, kKvBlockTokens + 2, 100});
}

TEST_CASE("No sequence of the probe is longer than it may be, and one is exactly as long") {
  for (const int64_t most : {2, 5, 24, 25, 60, 66, 67, 511}) {
    const std::vector<int64_t> sequences = ProbeSequences(most);
    REQUIRE(sequences.back() == most);
    REQUIRE(std::is_sorted(sequences.begin(), sequences.end()));
    REQUIRE(sequences.front() >= 2);  // a token of prompt and one of response
  }
}

}  // namespace tandem
