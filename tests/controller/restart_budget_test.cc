#include "controller/restart_budget.h"

#include <thread>

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("A restart is spent once per incident, as often as the limit says", "[serving]") {
  RestartBudget budget(2);
  const absl::Status lost = absl::UnavailableError("trainer 0 is gone");
  REQUIRE(budget.Spend(lost).ok());
  REQUIRE(budget.Spend(lost).ok());  // the same incident
  REQUIRE(budget.spent() == 1);
  budget.Settle();
  REQUIRE(budget.Spend(lost).ok());
  budget.Settle();
  const absl::Status refused = budget.Spend(lost);
  REQUIRE(absl::IsUnavailable(refused));
  REQUIRE(std::string(refused.message()).find("cluster.max_restarts") != std::string::npos);
  REQUIRE(budget.spent() == 2);
}

TEST_CASE("Restarts are counted for users while the train loop spends them", "[serving]") {
  constexpr int64_t kRestarts = 100;
  RestartBudget budget(kRestarts);
  std::thread loop([&] {
    for (int64_t i = 0; i < kRestarts; ++i) {
      (void)budget.Spend(absl::UnavailableError("gone"));
      budget.Settle();
    }
  });
  int64_t seen = 0;
  bool back = false;
  while (seen < kRestarts) {
    const int64_t now = budget.spent();
    back = back || now < seen;
    seen = now;
  }
  loop.join();
  REQUIRE_FALSE(back);
}

}  // namespace tandem
