#include "controller/store/time_stamp.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("a stamp has microseconds and is read back") {
  constexpr int64_t kMicros = 1767323045000006;
  REQUIRE(StampText(kMicros) == "2026-01-02T03:04:05.000006Z");
  REQUIRE(MicrosOfStamp(StampText(kMicros)) == kMicros);
  REQUIRE(StampText(kMicros - 6) == "2026-01-02T03:04:05.000000Z");
  REQUIRE(MicrosOfStamp("2026-01-02T04:04:05+01:00") == kMicros - 6);
}

TEST_CASE("an unknown moment is an empty text") {
  REQUIRE(StampText(0).empty());
  REQUIRE(MicrosOfStamp("") == 0);
  REQUIRE(MicrosOfStamp("yesterday") == 0);
}

}  // namespace
}  // namespace tandem
