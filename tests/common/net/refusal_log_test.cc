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

TEST_CASE("Callers with ever new names cost no more memory than a limit", "[roles]") {
  testing::FakeClock clock;
  RefusalLog log(clock);
  for (size_t i = 0; i < RefusalLog::kMostRemembered; ++i) REQUIRE(log.IsDue(std::to_string(i)));
  REQUIRE_FALSE(log.IsDue("0"));
  REQUIRE(log.IsDue("another"));  // all others are forgotten
  REQUIRE(log.IsDue("0"));
}

}  // namespace tandem
