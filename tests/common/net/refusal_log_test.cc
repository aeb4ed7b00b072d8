#include "common/net/security/refusal_log.h"

#include <catch2/catch.hpp>

#include "tests/fakes/fake_clock.h"

namespace tandem {

TEST_CASE("A refused caller is told of once a minute, each by itself", "[roles]") {
  testing::FakeClock clock;
  RefusalLog log(clock);
  REQUIRE(log.IsDue("a"));
  REQUIRE_FALSE(log.IsDue("a"));
  REQUIRE(log.IsDue("b"));
  clock.Advance(RefusalLog::kPause - absl::Seconds(1));
  REQUIRE_FALSE(log.IsDue("a"));
  clock.Advance(absl::Seconds(1));
  REQUIRE(log.IsDue("a"));
  REQUIRE_FALSE(log.IsDue("a"));
}

TEST_CASE("Callers with ever new names fill neither the log nor the memory", "[roles]") {
  testing::FakeClock clock;
  RefusalLog log(clock);
  REQUIRE(log.IsDue("first"));
  clock.Advance(absl::Seconds(1));
  for (size_t i = 1; i < RefusalLog::kMostLines; ++i) REQUIRE(log.IsDue(std::to_string(i)));
  REQUIRE_FALSE(log.IsDue("another"));
  clock.Advance(RefusalLog::kPause - absl::Seconds(1));
  REQUIRE(log.IsDue("another"));  // the first one's minute is over
  REQUIRE_FALSE(log.IsDue("first"));
}

}  // namespace tandem
