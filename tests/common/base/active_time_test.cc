#include "common/base/active_time.h"

#include <catch2/catch.hpp>

#include "common/base/clock.h"

namespace tandem {
namespace {

TEST_CASE("Active time counts everything while no gap is discounted", "[clock]") {
  ActiveTime active;
  REQUIRE(active.At(absl::Seconds(100)) == absl::Seconds(100));
  REQUIRE(active.At(absl::Seconds(4000)) == absl::Seconds(4000));
  REQUIRE(active.paused() == absl::ZeroDuration());
}

TEST_CASE("A gap between two readings above the limit is a pause and not counted", "[clock]") {
  ActiveTime active;
  active.DiscountGapsAbove(absl::Seconds(1), absl::Seconds(100));
  REQUIRE(active.At(absl::Seconds(101)) == absl::Seconds(101));
  // Stopped for an hour: a deadline at 103 has still two seconds left.
  REQUIRE(active.At(absl::Seconds(3701)) == absl::Seconds(101));
  REQUIRE(active.paused() == absl::Hours(1));
  REQUIRE(active.At(absl::Seconds(3702)) == absl::Seconds(102));
  REQUIRE(active.At(absl::Seconds(3705)) == absl::Seconds(102));
  REQUIRE(active.paused() == absl::Hours(1) + absl::Seconds(3));
}

TEST_CASE("Active time does not go back when gaps count again", "[clock]") {
  ActiveTime active;
  active.DiscountGapsAbove(absl::Seconds(1), absl::Seconds(10));
  REQUIRE(active.At(absl::Seconds(40)) == absl::Seconds(10));
  active.DiscountGapsAbove(absl::InfiniteDuration(), absl::Seconds(40));
  REQUIRE(active.At(absl::Seconds(50)) == absl::Seconds(20));
}

TEST_CASE("Instants are compared and subtracted, also infinite ones", "[clock]") {
  const Instant start(absl::Seconds(5));
  REQUIRE(start + absl::Seconds(2) > start);
  REQUIRE((start + absl::Seconds(2)) - start == absl::Seconds(2));
  REQUIRE(start < Instant::InfiniteFuture());
  REQUIRE(start > Instant::InfinitePast());
  REQUIRE(start + absl::InfiniteDuration() == Instant::InfiniteFuture());
  REQUIRE(start - Instant::InfinitePast() == absl::InfiniteDuration());
}

}  // namespace
}  // namespace tandem
