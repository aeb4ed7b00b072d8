// Runs that go on without a rollout whose host is lost.
#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/fakes/fake_run.h"

namespace tandem {
namespace {

constexpr WorkerKey kRolloutOne{WorkerRole::kRollout, 1};

// One trainer and two rollouts; rollout 1 dies and does not come back, and is left out while the
// run waits for it.
struct LossyRun : testing::FakeRun {
  LossyRun() : FakeRun(Topology{.trainers = 1, .rollouts = 2, .apart = true}) {
    options.total_steps = 4;
    options.probe = true;
    stay_away.insert(kRolloutOne);
    clock.OnSleep([this] {
      RestartMissing();
      if (++waits == 3) active->LeaveOut(1);
    });
  }
  int64_t Calls(const std::vector<std::string>& lines, const std::string& of) const {
    return std::count_if(lines.begin(), lines.end(),
                         [&of](const std::string& line) { return line.rfind(of, 0) == 0; });
  }
  int waits = 0;
};

}  // namespace

TEST_CASE("A run goes on without a rollout that is left out, in whatever phase it was lost",
          "[loop][recovery]") {
  const std::string phase = GENERATE("Generate", "Wake", "VerifyWeights", "Sleep");
  LossyRun run;
  run.DieAt(kRolloutOne, phase, 1);
  const absl::Status status = run.Run();
  INFO(phase << ": " << status);
  REQUIRE(status.ok());
  REQUIRE(run.store.steps.size() == 4);
  REQUIRE(run.waits >= 3);
  REQUIRE(run.budget.spent() == 1);
  const std::vector<std::string> lines = run.journal.Take();
  REQUIRE(run.Calls(lines, "rollout 0 Generate") > run.Calls(lines, "rollout 1 Generate"));
  // Every sample that a step needs was made.
  for (const auto& [step, samples] : run.store.samples) REQUIRE(samples.size() == 8);
}

TEST_CASE("A rollout that was left out gets the weights with the others and generates again",
          "[loop][recovery]") {
  LossyRun run;
  run.options.total_steps = 6;
  run.DieAt(kRolloutOne, "Generate");
  run.store.on_write = [&] {
    if (run.store.steps.size() == 2 && !run.stay_away.empty()) {  // two steps are recorded
      run.stay_away.clear();
      run.clock.Advance(absl::Minutes(1));  // the rank of a silent process is free
      run.RestartMissing();
      run.journal.Take();
    }
    return absl::OkStatus();
  };
  const absl::Status status = run.Run();
  INFO(status);
  REQUIRE(status.ok());
  REQUIRE(run.active->Ranks() == std::vector<int>{0, 1});
  const std::vector<std::string> lines = run.journal.Take();
  REQUIRE(run.Calls(lines, "rollout 1 Generate") > 0);
  const auto first_sync = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("SyncWeights") != std::string::npos && line.find("r1i2") != std::string::npos;
  });
  const auto first_call = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.rfind("rollout 1 Generate", 0) == 0;
  });
  REQUIRE(first_sync < first_call);
  REQUIRE(run.budget.spent() == 1);
}

}  // namespace tandem
