#include "controller/workers/restart_budget.h"

#include <thread>

#include <absl/strings/cord.h>
#include <catch2/catch.hpp>

#include "common/process/exit_code.h"
#include "controller/workers/worker_registry.h"
#include "tests/fakes/fake_clock.h"

namespace tandem {

TEST_CASE("A restart is spent once per incident, as often as the limit says", "[serving]") {
  RestartBudget budget(2);
  const absl::Status lost = absl::UnavailableError("trainer 0 is gone");
  REQUIRE(budget.Charge(WorkerRole::kTrainer, lost).ok());
  REQUIRE(budget.Charge(WorkerRole::kTrainer, lost).ok());  // the same incident
  REQUIRE(budget.spent() == 1);
  REQUIRE(budget.RecoveringFrom(lost) == "recovering (1 of 2): trainer 0 is gone");
  budget.CloseIncident();
  REQUIRE(budget.Charge(WorkerRole::kTrainer, lost).ok());
  budget.CloseIncident();
  REQUIRE_FALSE(budget.gave_up());
  absl::Status last = lost;
  last.SetPayload("who", absl::Cord("trainer 0"));
  const absl::Status refused = budget.Charge(WorkerRole::kTrainer, last);
  REQUIRE(refused.message() ==
          "gave up after 2 recoveries (cluster.max_restarts): trainer 0 is gone");
  REQUIRE(refused.GetPayload("who") == absl::Cord("trainer 0"));
  REQUIRE(budget.spent() == 2);
  REQUIRE(budget.gave_up());
}

TEST_CASE("An incident covers four failures, and the fifth opens another", "[serving]") {
  RestartBudget budget(2);
  const absl::Status lost = absl::UnavailableError("trainer 0 is gone");
  for (int failure = 1; failure <= 8; ++failure) {
    REQUIRE(budget.Charge(WorkerRole::kTrainer, lost).ok());
    REQUIRE(budget.spent() == (failure <= 4 ? 1 : 2));
  }
  REQUIRE(absl::IsInternal(budget.Charge(WorkerRole::kTrainer, lost)));
}

TEST_CASE("Restarts that are used up are not a lost peer to the exit code", "[serving]") {
  for (const int64_t limit : {0, 1}) {
    RestartBudget budget(limit);
    const absl::Status lost = absl::UnavailableError("trainer 0 is gone");
    if (limit > 0) REQUIRE(budget.Charge(WorkerRole::kTrainer, lost).ok());
    budget.CloseIncident();
    const absl::Status refused = budget.Charge(WorkerRole::kTrainer, lost);
    const std::string said =
        limit == 1 ? "gave up after 1 recovery (" : "gave up after 0 recoveries (";
    REQUIRE(std::string(refused.message()).rfind(said, 0) == 0);
    for (const FailedAt stage : {FailedAt::kInputs, FailedAt::kRun}) {
      REQUIRE(ExitCodeAt(stage, refused) == kExitInternal);
      REQUIRE(ExitCodeAt(stage, lost) == kExitPeerLost);
    }
  }
}

TEST_CASE("Each role has restarts of its own, and gets them back after the window", "[serving]") {
  testing::FakeClock clock;
  RestartBudget budget(1, absl::Hours(1), clock);
  const absl::Status lost = absl::UnavailableError("gone");
  const auto charge = [&](WorkerRole role) {
    budget.CloseIncident();
    return budget.Charge(role, lost);
  };
  REQUIRE(charge(WorkerRole::kTrainer).ok());
  REQUIRE(charge(WorkerRole::kRollout).ok());
  clock.Advance(absl::Minutes(61));
  REQUIRE(charge(WorkerRole::kRollout).ok());
  REQUIRE(budget.RecoveringFrom(lost) == "recovering (1 of 1): gone");
  REQUIRE(budget.spent() == 3);
  clock.Advance(absl::Minutes(59));
  REQUIRE(absl::IsInternal(charge(WorkerRole::kRollout)));
}

TEST_CASE("Restarts are counted for users while the train loop spends them", "[serving]") {
  constexpr int64_t kRestarts = 100;
  RestartBudget budget(kRestarts);
  std::thread loop([&] {
    for (int64_t i = 0; i < kRestarts; ++i) {
      (void)budget.Charge(WorkerRole::kTrainer, absl::UnavailableError("gone"));
      budget.CloseIncident();
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
